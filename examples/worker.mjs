// Works only while the sidecar beside it leads. Node 18 or newer. BELLWETHER is the sidecar's URL.
const url = process.env.BELLWETHER ?? 'http://127.0.0.1:4040';
const pause = () => new Promise(done => setTimeout(done, 1000));

async function work(token) {
  console.log('working with token', token);
  await pause();
}

async function ask() {
  const answer = await fetch(`${url}/is-leader`, { signal: AbortSignal.timeout(2000) });
  return answer.json();
}

for (;;) {
  try {
    const events = await fetch(`${url}/events`);
    if (!events.ok) throw new Error(`${url}/events answers ${events.status}`);
    // The event may be outdated when it is read: work only before the deadline.
    for await (const _ of events.body) {
      for (let is; (is = await ask()).is_leader;) {
        // The clock of `hrtime` is CLOCK_MONOTONIC.
        if (process.hrtime.bigint() < BigInt(is.valid_until_monotonic_ns)) await work(is.token);
      }
    }
  } catch (error) {
    console.error(String(error));
    await pause();
  }
}
