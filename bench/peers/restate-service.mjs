// Restate's service: a handler of three durable steps, each of which does nothing, until standard input ends.
// node restate-service.mjs PORT

import * as restate from '@restatedev/restate-sdk';
import { ANSWER } from './payload.mjs';

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
