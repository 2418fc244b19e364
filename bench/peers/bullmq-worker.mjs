// BullMQ's worker: answers every job with a constant until its standard input ends.
// node bullmq-worker.mjs PORT QUEUE CONCURRENCY

import { Worker } from 'bullmq';
import { ANSWER } from './payload.mjs';

const [port, queue, concurrency] = process.argv.slice(2);
const worker = new Worker(queue, async () => ANSWER, {
  connection: { host: '127.0.0.1', port: Number(port), maxRetriesPerRequest: null },
  concurrency: Number(concurrency),
});
await worker.waitUntilReady();
console.log('ready');
process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
