// What every call carries and what every answer is: the same as in `towpath bench`.

export const PARAMS = { order_id: 'A-1001', amount: 12.5, currency: 'EUR', lines: [{ sku: 'x-1', quantity: 2 }] };
export const ANSWER = { accepted: true };
