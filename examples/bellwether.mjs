// A client of the sidecar in one file, to copy: Node 18 or newer on Linux, without a dependency.
//
//   const sidecar = new Bellwether();                         // http://127.0.0.1:4040, or BELLWETHER_URL
//   await sidecar.leader()                                    // who leads, as {id, address, ...}, or null
//   sidecar.follow(onElected, onLost)                         // calls onElected(token) and onLost()
//   sidecar.isLeader()                                        // right before each side effect
//   sidecar.token()                                           // the fencing token; null while this member does not lead
//   const lock = await sidecar.lock('migrate', {wait: 5000})  // lock.token; lock.isHeld() right before each side effect
//   lock.release()                                            // in a `finally`
//
// The store keeps the tokens of the election, and of each lock, in a column of its own: a leader's token dates from its joining, so
// it may be smaller than that of an earlier lock.
//
// Run it to see it at work: `bellwether.mjs` works while its member leads, `bellwether.mjs lock NAME [SECONDS]` while it holds a
// lock, for which it waits so long, and gives that back when its standard input ends.
import http from 'node:http';
import { pathToFileURL } from 'node:url';

const pause = ms => new Promise(done => setTimeout(done, ms));

// hrtime is CLOCK_MONOTONIC, which stands still while the machine is suspended. The wall clock does not.
const monotonicMs = () => Number(process.hrtime.bigint()) / 1e6;
const wallAheadMs = () => Date.now() - monotonicMs();

// An answer of the sidecar that is none to what was asked; `detail` is undefined if it says nothing.
export class AnswerError extends Error {
  name = 'AnswerError';

  constructor(request, status, detail) {
    super(`${request} is answered with ${status}: ${detail ?? 'is that a sidecar?'}`);
    this.status = status;
    this.detail = detail;
  }
}

// A lock was not got in time.
export class TimeoutError extends Error {
  name = 'TimeoutError';
}

// Returns the options for `http.request` of http://HOST:PORT, HOST:PORT, HOST, :PORT, PORT or unix:PATH.
function address(url) {
  if (url.startsWith('unix:/')) return { socketPath: url.slice(5) };
  const shape = /^(http:\/\/)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]*)(?::([0-9]{1,5}))?\/?$/;
  const parts = shape.exec(url.replace(/^[0-9]+$/, ':$&'));
  if (!parts || !(parts[2] || (parts[3] && !parts[1]))) {
    throw new Error(`${JSON.stringify(url)} is not a sidecar's address: write http://HOST:PORT or unix:PATH`);
  }
  const [, scheme, host, port] = parts;
  return { host: host.replace(/[\[\]]/g, '') || '127.0.0.1', port: Number(port ?? (scheme ? 80 : 4040)) };
}

// Returns the object, without fields if the answer is not the JSON of one.
async function object(answer) {
  let text = '';
  for await (const part of answer) text += part;
  try {
    return Object(JSON.parse(text));
  } catch {
    return {};
  }
}

// Calls back, and logs what is thrown, also by an async function.
async function call(callback, ...values) {
  try {
    await callback(...values);
  } catch (error) {
    console.error('a callback failed:', error);
  }
}

// A token, until when it counts, by the clock that the sidecar and this process share, and how often to renew it.
class Lease {
  // `wallAhead` is of before the answer can have been written.
  constructor(answer, token, wallAhead) {
    this.token = token;
    this.intervalMs = answer.valid_for_ms / 4;
    this.until = answer.valid_until_monotonic_ns / 1e6;
    this.wallAhead = wallAhead;
    if (this.until - monotonicMs() > answer.valid_for_ms + 1) {
      throw new Error('the sidecar has another clock: it must run on this machine');
    }
  }

  leftMs() {
    const suspended = Math.max(0, wallAheadMs() - this.wallAhead);
    return this.until - monotonicMs() - suspended;
  }
}

export class Bellwether {
  #lease = null;
  #address;

  constructor(url = process.env.BELLWETHER_URL ?? 'http://127.0.0.1:4040', commandToken = null) {
    this.url = url;
    this.#address = address(url);
    this.headers = commandToken ? { authorization: `Bearer ${commandToken}` } : { 'x-bellwether': '1' };
  }

  async leader() {
    return (await this.#get('/leader', 2000)).leader ?? null;
  }

  // Follows until the process ends. The callbacks run on the event loop: nothing is renewed while one blocks it. What they throw is
  // logged.
  async follow(onElected = () => {}, onLost = () => {}) {
    let led = null;
    let index = 0;
    let reported = '';
    for (;;) {
      // While it leads, the deadline is renewed in good time, and a silent sidecar is waited for no longer than that.
      const left = this.#lease?.leftMs() ?? 0;
      const [wait, timeout] = left > 0 ? [Math.min(left / 2, this.#lease.intervalMs), left] : [60_000, 65_000];
      let failed = false;
      if (this.#lease && left <= 0) {
        this.#lease = null; // Ask again at once: the next lease need not be a change.
        index = 0;
      } else {
        try {
          const wallAhead = wallAheadMs();
          const answer = await this.#get(`/leader?index=${index}&wait=${Math.floor(wait)}ms`, timeout);
          this.#lease = answer.is_self ? new Lease(answer, answer.leader.token, wallAhead) : null;
          if (!Number.isInteger(answer.index)) throw new Error(`it has not joined: ${answer.detail}`);
          index = answer.index;
          reported = '';
        } catch (error) {
          // Without an answer, the lease of the last one still counts.
          // In the last second of a lease, the sidecar had too little time to answer.
          if (timeout >= 1000 && reported !== `${error}`) {
            console.warn(`the sidecar at ${this.url} gives no good answer, asking again: ${error}`);
            reported = `${error}`;
          }
          index = 0;
          failed = true;
        }
      }
      const token = this.token();
      if (token !== led) {
        if (led !== null) call(onLost);
        if (token !== null) call(onElected, token);
        led = token;
      }
      if (failed) await pause(Math.max(0, Math.min(1000, this.#lease?.leftMs() ?? 1000)));
    }
  }

  isLeader() {
    return this.token() !== null;
  }

  token() {
    return this.#lease?.leftMs() > 0 ? this.#lease.token : null;
  }

  // Resolves once the lock is held; rejects with a TimeoutError after `wait` milliseconds, and five seconds later beside a frozen
  // sidecar, or with an AnswerError if the sidecar refuses it.
  async lock(name, { wait = null } = {}) {
    if (!/^[A-Za-z0-9._-]{1,64}$/.test(name) || name === '.' || name === '..') {
      throw new Error(`${JSON.stringify(name)} is not a lock's name: write 1 to 64 of A-Z a-z 0-9 . _ -`);
    }
    const request = `POST /locks/${name}`;
    const lock = new Lock();
    const query = wait === null ? '' : `?wait=${wait}ms`;
    let isLate = false;
    const giveUp = () => {
      isLate = true;
      lock.release();
    };
    const timer = wait === null ? null : setTimeout(giveUp, wait + 5000);
    try {
      const answer = await this.#send('POST', `/locks/${name}${query}`, lock.connection.signal, this.headers);
      if (answer.statusCode !== 200) throw new AnswerError(request, answer.statusCode, (await object(answer)).detail);
      await new Promise((held, failed) => lock.read(request, answer, held).catch(failed));
    } catch (error) {
      lock.release();
      throw isLate ? new TimeoutError('the sidecar does not answer') : error;
    } finally {
      clearTimeout(timer);
    }
    return lock;
  }

  async #get(path, timeout) {
    const answer = await this.#send('GET', path, AbortSignal.timeout(Math.max(1, Math.floor(timeout))), {});
    const body = await object(answer);
    const isKnown = answer.statusCode === 200 && 'leader' in body;
    const isUnknown = answer.statusCode === 503 && `${body.type}`.endsWith('no-leader');
    if (!isKnown && !isUnknown) throw new AnswerError(`GET ${path} at ${this.url}`, answer.statusCode, body.detail);
    return body;
  }

  #send(method, path, signal, headers) {
    return new Promise((answered, failed) => {
      const request = http.request({ ...this.#address, method, path, signal, headers, agent: false }, answer => {
        answered(answer.setEncoding('utf8'));
      });
      request.on('error', failed).end();
    });
  }
}

// A lock that is held until it is released, or until the lease ends.
class Lock {
  #lease = null;
  token = null;
  connection = new AbortController();

  isHeld() {
    return this.#lease?.leftMs() > 0;
  }

  // The end of the connection gives the lock back.
  release() {
    this.#lease = null;
    this.connection.abort();
  }

  // Calls `held` once the lock is held, and throws when it no longer is, or was not got.
  async read(request, answer, held) {
    let event = '';
    let rest = '';
    let wallAhead = wallAheadMs();
    try {
      for await (const text of answer) {
        const lines = (rest + text).split('\n');
        rest = lines.pop();
        for (const line of lines) {
          if (line.startsWith('event: ')) event = line.slice(7);
          if (!line.startsWith('data: ')) continue;
          const data = JSON.parse(line.slice(6));
          if (event === 'held' || event === 'renewed') {
            if (this.connection.signal.aborted) throw new Error('released');
            this.token = data.token;
            this.#lease = new Lease(data, data.token, wallAhead);
            held();
          } else if (event === 'timeout') {
            throw new TimeoutError(data.why);
          } else if (event === 'refused') {
            throw new AnswerError(request, 409, data.why);
          } else if (event !== 'waiting') {
            throw new Error(data.why);
          }
        }
        wallAhead = wallAheadMs();
      }
      throw new Error('the sidecar has closed the connection');
    } finally {
      this.#lease = null; // Without the connection it is not held.
    }
  }
}

async function work(token) {
  console.log('working with token', token);
  await pause(250);
}

async function main() {
  const sidecar = new Bellwether();
  if (process.argv[2] === 'lock') {
    const lock = await sidecar.lock(process.argv[3], { wait: process.argv[4] ? process.argv[4] * 1000 : null });
    process.stdin.on('end', () => lock.release()).resume();
    while (lock.isHeld()) await work(lock.token);
    console.log('no longer held');
    process.exit();
  }
  let wake = () => {};
  sidecar.follow(() => wake(), () => console.error('no longer leading'));
  for (;;) {
    const token = sidecar.token();
    if (token !== null) await work(token);
    else await new Promise(elected => { wake = elected; });
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) await main();
