// Restate's caller: keeps IN_FLIGHT runs of three steps under way over HTTP, each waited for, and prints one line of JSON.
// node restate-caller.mjs IN_FLIGHT SECONDS
//
// The server is the one of the npm registry, a single node with its defaults in a folder of its own. The service is a process of its own.
// All of it runs in a network namespace that has a loopback address and nothing else, because the server asks GitHub for new versions.
// That needs root, and the programs unshare and ip.

import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import http from 'node:http';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { freePort } from './redis.mjs';
import { PARAMS } from './payload.mjs';

if (!process.env.TOWPATH_PEER_ALONE) {
  const inside = ['--net', 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh', process.execPath, ...process.argv.slice(1)];
  const ended = spawnSync('unshare', inside, { stdio: 'inherit', env: { ...process.env, TOWPATH_PEER_ALONE: '1' } });
  process.exit(ended.status ?? 1);
}

const [inFlight, seconds] = process.argv.slice(2).map(Number);
const WARM_UP_SECONDS = Math.min(8, 2 * seconds);
const agent = new http.Agent({ keepAlive: true, maxSockets: inFlight });

function post(port, path, body) {
  return new Promise((resolve, reject) => {
    const text = JSON.stringify(body);
    const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) };
    const request = http.request({ host: '127.0.0.1', port, path, method: 'POST', agent, headers }, (response) => {
      let answer = '';
      response.on('data', (part) => { answer += part; });
      response.on('end', () => (response.statusCode < 300 ? resolve(answer) : reject(new Error(`${response.statusCode} ${answer}`))));
    });
    request.on('error', reject);
    request.end(text);
  });
}

const [ingress, admin, node, service] = await Promise.all([freePort(), freePort(), freePort(), freePort()]);
const folder = mkdtempSync(join(tmpdir(), 'towpath-restate-'));
const environment = {
  ...process.env,
  RESTATE_INGRESS__BIND_ADDRESS: `127.0.0.1:${ingress}`,
  RESTATE_ADMIN__BIND_ADDRESS: `127.0.0.1:${admin}`,
  RESTATE_BIND_ADDRESS: `127.0.0.1:${node}`,
  RESTATE_ADVERTISED_ADDRESS: `http://127.0.0.1:${node}`,
  RESTATE_DISABLE_TELEMETRY: 'true',
  DO_NOT_TRACK: '1',
};
const platform = `@restatedev/restate-server-${process.platform}-${process.arch}`;
const binary = join(dirname(createRequire(import.meta.url).resolve(`${platform}/package.json`)), 'bin', 'restate-server');
const server = spawn(binary, ['--base-dir', folder, '--log-filter', 'error'], { env: environment, stdio: ['ignore', 'ignore', 'inherit'] });
const serviceFile = fileURLToPath(new URL('restate-service.mjs', import.meta.url));
const worker = spawn(process.execPath, [serviceFile, service], { stdio: ['pipe', 'pipe', 'inherit'] });
process.on('exit', () => {
  server.kill('SIGKILL');
  worker.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
});
await once(worker.stdout, 'data');

async function until(what, condition) {
  const end = performance.now() + 60_000;
  for (;;) {
    try { return await condition(); } catch (error) {
      if (performance.now() > end) throw new Error(`${what}: ${error.message}`);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}
await until('the service could not be registered', () => post(admin, '/deployments', { uri: `http://127.0.0.1:${service}` }));
await until('the service does not answer', () => post(ingress, '/order/process', PARAMS));

async function runUntil(end) {
  const micros = [];
  const one = async () => {
    while (performance.now() < end) {
      const begin = performance.now();
      await post(ingress, '/order/process', PARAMS);
      micros.push((performance.now() - begin) * 1000);
    }
  };
  await Promise.all(Array.from({ length: inFlight }, one));
  return micros;
}

await runUntil(performance.now() + WARM_UP_SECONDS * 1000);
const begin = performance.now();
const micros = (await runUntil(begin + seconds * 1000)).sort((a, b) => a - b);
const took = (performance.now() - begin) / 1000;
const at = (quantile) => Math.round(micros[Math.min(micros.length - 1, Math.floor(micros.length * quantile))]);
console.log(JSON.stringify({ in_flight: inFlight, runs: micros.length, runs_per_second: Math.round(micros.length / took), p50_us: at(0.5), p99_us: at(0.99) }));
process.exit(0);
