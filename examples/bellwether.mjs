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
// Run it to see it at work: `bellwether.mjs` works while its member leads, `bellwether.mjs lock NAME` while it holds a lock.
import { pathToFileURL } from 'node:url';

const pause = ms => new Promise(done => setTimeout(done, ms));

// hrtime is CLOCK_MONOTONIC, which stands still while the machine is suspended. The wall clock does not.
const monotonicMs = () => Number(process.hrtime.bigint()) / 1e6;
const wallAheadMs = () => Date.now() - monotonicMs();

// A token, and until when it counts, by the clock that the sidecar and this process share.
class Lease {
  // `wallAhead` is of before the answer can have been written.
  constructor(answer, token, wallAhead) {
    this.token = token;
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

  constructor(url = process.env.BELLWETHER_URL ?? 'http://127.0.0.1:4040', commandToken = null) {
    this.url = url;
    this.headers = commandToken ? { authorization: `Bearer ${commandToken}` } : { 'x-bellwether': '1' };
  }

  async leader() {
    return (await this.#get('/leader', 2000)).leader ?? null;
  }

  // Follows until the process ends.
  async follow(onElected = () => {}, onLost = () => {}) {
    let led = null;
    let index = 0;
    for (;;) {
      // While it leads, the deadline is renewed in good time, and a silent sidecar is waited for no longer than that.
      const left = this.#lease?.leftMs() ?? 0;
      const [wait, timeout] = left > 0 ? [left / 2, left] : [60_000, 65_000];
      let failed = false;
      if (this.#lease && left <= 0) {
        this.#lease = null; // Ask again at once: the next lease need not be a change.
        index = 0;
      } else {
        try {
          const wallAhead = wallAheadMs();
          const answer = await this.#get(`/leader?index=${index}&wait=${Math.floor(wait)}ms`, timeout);
          this.#lease = answer.is_self ? new Lease(answer, answer.leader.token, wallAhead) : null;
          if (!Number.isInteger(answer.index)) throw new Error(answer.detail ?? 'no index');
          index = answer.index;
        } catch (error) {
          // The lease of the last answer still counts.
          console.warn(`no answer from the sidecar at ${this.url}: ${error}`);
          index = 0;
          failed = true;
        }
      }
      const token = this.token();
      if (token !== led) {
        if (led !== null) onLost();
        if (token !== null) onElected(token);
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

  // Resolves once the lock is held; rejects after `wait` milliseconds.
  async lock(name, { wait = null } = {}) {
    const lock = new Lock();
    const query = wait === null ? '' : `?wait=${wait}ms`;
    const timer = wait === null ? null : setTimeout(() => lock.release(), wait + 5000);
    try {
      const signal = lock.connection.signal;
      const answer = await fetch(`${this.url}/locks/${name}${query}`, { method: 'POST', headers: this.headers, signal });
      if (!answer.ok) throw new Error(`the sidecar answers ${answer.status}: ${await answer.text()}`);
      await new Promise((held, failed) => lock.read(answer.body, held).catch(failed));
    } finally {
      clearTimeout(timer);
    }
    return lock;
  }

  async #get(path, timeout) {
    // A 503 has a body too: no leader is known.
    const answer = await fetch(this.url + path, { signal: AbortSignal.timeout(Math.max(1, Math.floor(timeout))) });
    return answer.json();
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
  async read(body, held) {
    let event = '';
    let rest = '';
    let wallAhead = wallAheadMs();
    try {
      for await (const text of body.pipeThrough(new TextDecoderStream())) {
        const lines = (rest + text).split('\n');
        rest = lines.pop();
        for (const line of lines) {
          if (line.startsWith('event: ')) event = line.slice(7);
          if (!line.startsWith('data: ')) continue;
          const data = JSON.parse(line.slice(6));
          if (event === 'held' || event === 'renewed') {
            if (this.connection.signal.aborted) return;
            this.token = data.token;
            this.#lease = new Lease(data, data.token, wallAhead);
            held();
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
    const lock = await sidecar.lock(process.argv[3]);
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

if (import.meta.url === pathToFileURL(process.argv[1]).href) await main();
