// A redis-server of our own: free port, temporary folder, gone when it is closed.

import { spawn, execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const PERSISTENCE = {
  memory: ['--appendonly', 'no'],
  everysec: ['--appendonly', 'yes', '--appendfsync', 'everysec'],
  always: ['--appendonly', 'yes', '--appendfsync', 'always'],
};

export class RedisServer {
  static async start(durability) {
    const persistence = PERSISTENCE[durability];
    if (!persistence) throw new Error(`--durability is one of ${Object.keys(PERSISTENCE).join(', ')}, not '${durability}'`);
    const server = new RedisServer();
    server.port = await freePort();
    server.folder = mkdtempSync(join(tmpdir(), 'towpath-peers-'));
    // No snapshot and no rewrite of the log: a fork in the middle of one measurement would hit one side alone.
    const quiet = ['--save', '', '--auto-aof-rewrite-percentage', '0', '--loglevel', 'warning'];
    const place = ['--bind', '127.0.0.1', '--port', String(server.port), '--dir', server.folder];
    server.process = spawn('redis-server', [...place, ...quiet, ...persistence], { stdio: ['ignore', 'ignore', 'inherit'] });
    server.process.on('error', (error) => { throw error; });
    process.on('exit', () => server.close());
    await until(() => reachable(server.port));
    return server;
  }

  get url() {
    return `redis://127.0.0.1:${this.port}`;
  }

  // Removes all data, so that each measurement begins alike.
  flush() {
    return command(this.port, 'FLUSHALL SYNC');
  }

  close() {
    this.process.kill('SIGKILL');
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 3 });
  }

  static version() {
    return execFileSync('redis-server', ['--version'], { encoding: 'utf8' }).match(/v=(\S+)/)[1];
  }
}

export function freePort() {
  return new Promise((resolve, reject) => {
    const listener = createServer().on('error', reject);
    listener.listen(0, '127.0.0.1', () => {
      const { port } = listener.address();
      listener.close(() => resolve(port));
    });
  });
}

function command(port, text) {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () => socket.write(`${text}\r\n`));
    socket.on('error', reject);
    socket.on('data', (reply) => {
      socket.end();
      resolve(reply.toString());
    });
  });
}

const reachable = (port) => command(port, 'PING').then((reply) => reply.startsWith('+PONG'), () => false);

async function until(condition) {
  const end = performance.now() + 10_000;
  while (!(await condition())) {
    if (performance.now() > end) throw new Error('redis-server did not become ready in ten seconds');
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
