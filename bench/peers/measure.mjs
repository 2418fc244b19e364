// Rounds of measurements, interleaved so that a machine that changes meanwhile favours neither side; the medians go into docs/benchmarks.md.

import { execFile } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism, cpus, release, totalmem } from 'node:os';
import { fileURLToPath } from 'node:url';
import { parseArgs, promisify } from 'node:util';
import { RedisServer } from './redis.mjs';
import { between, page, picture } from './render.mjs';

const IN_FLIGHT = [1, 64, 256, 1024];
const DECISIVE = 1024;
const root = new URL('../../', import.meta.url);
const file = (path) => fileURLToPath(new URL(path, root));

const { values: options } = parseArgs({
  options: {
    rounds: { type: 'string', default: '3' },
    seconds: { type: 'string', default: '60' }, // of the decisive level, 1,024 in flight; the others take a quarter of it, as in towpath bench
    durability: { type: 'string', default: 'memory' },
    quick: { type: 'boolean', default: false }, // one short round, to see that it works
    print: { type: 'boolean', default: false }, // do not touch docs/
  },
});
const rounds = options.quick ? 1 : Number(options.rounds);
const seconds = options.quick ? 2 : Number(options.seconds);
const lengthOf = (inFlight) => (Number(inFlight) >= DECISIVE ? seconds : Math.max(1, seconds / 4));

const say = (text) => process.stderr.write(`${text}\n`);
// A side that takes this long has lost an answer and waits in vain.
const timeout = seconds * 4_000 + 900_000;
let running;
const run = async (program, args) => {
  const done = promisify(execFile)(program, args.map(String), { maxBuffer: 1 << 24, timeout });
  running = done.child;
  return JSON.parse((await done).stdout);
};
const median = (numbers) => {
  const sorted = numbers.filter((number) => number != null).sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  if (sorted.length === 0) return null;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
};
// Of the fields that are numbers.
const medians = (samples) => {
  const keys = Object.keys(samples[0]).filter((key) => samples.every((sample) => typeof sample[key] === 'number' || sample[key] === null));
  return Object.fromEntries(keys.map((key) => [key, median(samples.map((sample) => sample[key]))]));
};
// Each aim that a sample was judged by, with the median of what was found.
const judged = (samples) =>
  samples[0].aims.map((aim) => {
    const value = median(samples.map((sample) => sample.aims.find(({ what }) => what === aim.what)?.value));
    const [side, bound] = aim.aim.split(' ');
    return { ...aim, value, met: side === '>=' ? value >= Number(bound) : value <= Number(bound) };
  });

// What is under way must not outlive us; its own worker ends with it.
process.on('exit', () => running?.kill());
const redis = await RedisServer.start(options.durability);
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(130));

const towpath = (...args) => run(file('target/release/towpath'), ['--json', 'bench', '--store', redis.url, ...args]);
const sides = {
  towpath: async (inFlight) => {
    const how = ['--only', 'calls', '--in-flight', inFlight, '--seconds', seconds];
    const report = await towpath(...how, ...(options.quick ? ['--quick'] : []));
    return { ...report.calls[0], aims: report.aims, script_us: report.longest_script_us };
  },
  bullmq: (inFlight) => run(process.execPath, [file('bench/peers/bullmq-caller.mjs'), redis.port, inFlight, lengthOf(inFlight)]),
};

const samples = new Map(IN_FLIGHT.map((inFlight) => [inFlight, { towpath: [], bullmq: [] }]));
for (let round = 0; round < rounds; round++) {
  for (const inFlight of IN_FLIGHT) {
    // Who goes first changes from round to round.
    const order = round % 2 ? ['bullmq', 'towpath'] : ['towpath', 'bullmq'];
    for (const side of order) {
      await redis.flush();
      const sample = await sides[side](String(inFlight));
      say(`round ${round + 1} of ${rounds}, ${inFlight} in flight: ${side} ${sample.calls_per_second} calls/s`);
      samples.get(inFlight)[side].push(sample);
    }
  }
}
const levels = IN_FLIGHT.map((inFlight) => {
  const { towpath, bullmq } = samples.get(inFlight);
  return { inFlight, towpath: medians(towpath), bullmq: medians(bullmq), aims: judged(towpath), last: towpath.at(-1) };
});

await redis.flush();
say('Towpath alone: a steady pace, growth, an idle server');
const alone = await towpath('--only', 'pace', '--only', 'growth', '--only', 'idle', options.quick ? '--quick' : '--full');
redis.close();

const version = (name) => JSON.parse(readFileSync(file(`bench/peers/node_modules/${name}/package.json`))).version;
const machine = [
  `${availableParallelism()} cores (${cpus()[0].model.trim()})`,
  `${Math.round(totalmem() / 2 ** 30)} GB`,
  `${process.platform} ${release().split(/[-+]/)[0]}`,
  `Redis ${RedisServer.version()}, durability ${options.durability}`,
  `BullMQ ${version('bullmq')} with ioredis ${version('ioredis')} on Node ${process.versions.node}`,
].join(', ');
const text = page({ machine, levels, alone, rounds, seconds });
console.log(text);
if (!options.print) {
  const docs = file('docs/benchmarks.md');
  writeFileSync(docs, between(readFileSync(docs, 'utf8'), text));
  writeFileSync(file('docs/benchmarks-redis.svg'), picture(levels));
  say('docs/benchmarks.md and docs/benchmarks-redis.svg are rewritten');
}
