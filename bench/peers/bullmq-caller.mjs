// BullMQ's caller: keeps so many jobs under way, each added and then waited for, and prints one line of JSON.
// node bullmq-caller.mjs PORT IN_FLIGHT SECONDS
//
// The worker is a process of its own with as many jobs at once as are in flight, as in `towpath bench`. Finished jobs are removed after
// two seconds (`removeOnComplete: { age: 2 }`), as `towpath bench` keeps outcomes for two seconds; a job that is removed at once may be
// gone before `waitUntilFinished` looks for it. Everything else is BullMQ's default.

import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { once } from 'node:events';
import { Queue, QueueEvents } from 'bullmq';
import { PARAMS } from './payload.mjs';

const [port, inFlight, seconds] = process.argv.slice(2).map(Number);
// Long enough for the removal of finished jobs to be under way. As in `towpath bench`.
const WARM_UP_SECONDS = Math.min(8, 2 * seconds);
const REMOVE = { removeOnComplete: { age: 2 }, removeOnFail: { age: 2 } };
const name = `peer-${process.pid}`;
const connection = { host: '127.0.0.1', port, maxRetriesPerRequest: null };

const workerFile = fileURLToPath(new URL('bullmq-worker.mjs', import.meta.url));
const concurrency = Math.max(inFlight, 16);
const worker = spawn(process.execPath, [workerFile, port, name, concurrency], { stdio: ['pipe', 'pipe', 'inherit'] });
await once(worker.stdout, 'data');

const queue = new Queue(name, { connection, defaultJobOptions: REMOVE });
// From the first event on: by default it begins with what comes after its first read, and a call that ends before that is waited for in vain.
const events = new QueueEvents(name, { connection, lastEventId: '0' });
// Every job that is waited for listens to both, so that many listeners are no leak.
for (const emitter of [queue, events]) emitter.setMaxListeners(0);
await Promise.all([queue.waitUntilReady(), events.waitUntilReady()]);

// Calls over and over until `end`, and returns how long each call took, in microseconds.
async function callUntil(end) {
  const micros = [];
  const one = async () => {
    while (performance.now() < end) {
      const begin = performance.now();
      const job = await queue.add('nothing', PARAMS);
      await job.waitUntilFinished(events);
      micros.push((performance.now() - begin) * 1000);
    }
  };
  await Promise.all(Array.from({ length: inFlight }, one));
  return micros;
}

await callUntil(performance.now() + WARM_UP_SECONDS * 1000);
const begin = performance.now();
const micros = (await callUntil(begin + seconds * 1000)).sort((a, b) => a - b);
const took = (performance.now() - begin) / 1000;
const at = (quantile) => Math.round(micros[Math.min(micros.length - 1, Math.floor(micros.length * quantile))]);
// BullMQ keeps these; level when removal keeps up.
const kept = await queue.getCompletedCount();
console.log(JSON.stringify({ in_flight: inFlight, calls: micros.length, kept, calls_per_second: Math.round(micros.length / took), p50_us: at(0.5), p99_us: at(0.99) }));

worker.stdin.end();
await once(worker, 'exit');
await queue.obliterate({ force: true });
await Promise.all([events.close(), queue.close()]);
