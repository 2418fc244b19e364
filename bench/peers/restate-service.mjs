// Restate's service: a handler of three durable steps, each of which does nothing, until standard input ends.
// node restate-service.mjs PORT

import { ANSWER } from './payload.mjs';

// The SDK needs this function of Node 22.
Promise.withResolvers ??= () => {
  let resolve, reject;
  const promise = new Promise((...both) => { [resolve, reject] = both; });
  return { promise, resolve, reject };
};
const restate = await import('@restatedev/restate-sdk');

const [port] = process.argv.slice(2).map(Number);
const order = restate.service({
  name: 'order',
  handlers: {
    process: async (context) => {
      for (const step of ['reserve', 'charge', 'ship']) await context.run(step, () => ANSWER);
      return ANSWER;
    },
  },
});
await restate.endpoint().bind(order).listen(port);
console.log('ready');
process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
