// What was measured, as Markdown and as a picture.

const BEGIN = '<!-- calls on Redis -->';
const END = '<!-- end of calls on Redis -->';

const whole = (number) => Math.round(number).toLocaleString('en-US');
const ms = (micros) => (micros >= 10_000 ? (micros / 1000).toFixed(0) : (micros / 1000).toFixed(2));
const row = (cells) => `| ${cells.join(' | ')} |`;
const table = (headings, rows) => [row(headings), row(headings.map((_, index) => (index ? '---:' : '---'))), ...rows.map(row)].join('\n');

// Puts text between the marks of a page.
export function between(page, text) {
  const [begin, end] = [page.indexOf(BEGIN), page.indexOf(END)];
  if (begin < 0 || end < begin) throw new Error(`docs/benchmarks.md has no '${BEGIN}' followed by '${END}'`);
  return `${page.slice(0, begin + BEGIN.length)}\n${text}\n${page.slice(end)}`;
}

export function page({ machine, levels, alone, rounds, seconds }) {
  const calls = table(
    ['in flight', 'bare Redis calls/s', 'Towpath calls/s', 'p50 / p99 ms', 'Redis CPU per call: Towpath, bare', 'of the bare Redis', 'BullMQ calls/s', 'p50 / p99 ms', 'Towpath : BullMQ'],
    levels.map(({ inFlight, towpath, bullmq }) => [
      whole(inFlight),
      whole(towpath.floor_calls_per_second),
      whole(towpath.calls_per_second),
      `${ms(towpath.p50_us)} / ${ms(towpath.p99_us)}`,
      `${towpath.store_cpu_us.toFixed(1)} us, ${towpath.floor_store_cpu_us.toFixed(1)} us`,
      (towpath.calls_per_second / towpath.floor_calls_per_second).toFixed(2),
      whole(bullmq.calls_per_second),
      `${ms(bullmq.p50_us)} / ${ms(bullmq.p99_us)}`,
      `${(towpath.calls_per_second / bullmq.calls_per_second).toFixed(1)}x`,
    ]),
  );
  const found = withoutRepeats([...fromLevels(levels), ...levels.flatMap((level) => level.aims), ...alone.aims]);
  const aims = table(
    ['what', 'found', 'aim', 'met'],
    found.map(({ what, value, unit, aim, met }) => [what, `${value.toFixed(2)} ${unit}`, aim, met ? 'yes' : 'no']),
  );
  const times = rounds === 1 ? 'One round' : `Medians of ${rounds} rounds`;
  const length = `${times} of ${seconds} s with 1,024 in flight and ${Math.max(1, seconds / 4)} s with fewer, after a warm-up to steady state`;
  const picture = '![Calls per second against a bare Redis](benchmarks-redis.svg)';
  return [`${machine}. ${length}.`, calls, picture, aims, overTime(levels.at(-1).last)].filter(Boolean).join('\n\n');
}

// A figure that several runs give counts once; of those that should be small, the largest.
function withoutRepeats(found) {
  const kept = new Map();
  for (const finding of found) {
    const before = kept.get(finding.what);
    if (!before || (finding.aim.startsWith('<=') && finding.value > before.value)) kept.set(finding.what, finding);
  }
  return [...kept.values()];
}

// The latest round of the decisive level.
function overTime({ over_time: rounds }) {
  const round = rounds?.at(-1);
  if (!round?.samples.length) return '';
  const rows = round.samples.map((sample) => [
    `${sample.at_s} s`,
    whole(sample.calls_per_second),
    `${(sample.store_bytes / 1e6).toFixed(1)} MB`,
    sample.kept === null ? '-' : whole(sample.kept),
    whole(sample.kept_computed),
  ]);
  const readings = table(['at', 'Towpath calls/s', 'Redis memory', 'kept calls', 'rate x retention'], rows);
  const growth = round.memory_growth_percent;
  const verdict = growth === null ? '' : `\n\nMemory is ${round.memory_is_level ? 'level' : 'not level'}: ${growth} % in the second half.`;
  return `1,024 in flight over time:\n\n${readings}${verdict}`;
}

// What the medians say about the aims that need several programs or rounds.
function fromLevels(levels) {
  const at = (inFlight) => levels.find((level) => level.inFlight === inFlight);
  const [one, many] = [at(1), at(1024)];
  const atLeast = (what, value, bound) => ({ what, value, unit: 'x', aim: `>= ${bound}`, met: value >= bound });
  const atMost = (what, value, bound) => ({ what, value, unit: 'x', aim: `<= ${bound}`, met: value <= bound });
  return [
    atLeast('calls/s against the floor, 1024 in flight', many.towpath.calls_per_second / many.towpath.floor_calls_per_second, 0.35),
    atLeast('calls/s against BullMQ, 1024 in flight', many.towpath.calls_per_second / many.bullmq.calls_per_second, 10),
    atMost('p50 of one call against the floor', one.towpath.p50_us / one.towpath.floor_p50_us, 2),
  ];
}

const LEFT = 120;
const WIDTH = 440;
const BAR = 18;
const GROUP = 3 * BAR + 22;

// One group of bars for each level; the bare Redis is the full width.
export function picture(levels) {
  const height = 40 + GROUP * levels.length;
  const parts = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="760" height="${height}" font-family="sans-serif" font-size="13">`,
    '<rect width="100%" height="100%" fill="white"/>',
    '<text x="10" y="20">calls/s, answered and waited for; the bare Redis is the full width</text>',
  ];
  levels.forEach(({ inFlight, towpath, bullmq }, index) => {
    const top = 36 + GROUP * index;
    const most = Math.max(towpath.floor_calls_per_second, towpath.calls_per_second);
    parts.push(`<text x="110" y="${top + BAR * 1.5 + 5}" text-anchor="end">${inFlight} in flight</text>`);
    const bars = [
      ['bare Redis', towpath.floor_calls_per_second, '#bbbbbb'],
      ['Towpath', towpath.calls_per_second, '#2a6f97'],
      ['BullMQ', bullmq.calls_per_second, '#c1666b'],
    ];
    bars.forEach(([name, value, colour], line) => {
      const [y, width] = [top + BAR * line, Math.max(1, (value / most) * WIDTH)];
      parts.push(`<rect x="${LEFT}" y="${y}" width="${width.toFixed(1)}" height="${BAR - 2}" fill="${colour}"/>`);
      parts.push(`<text x="${(LEFT + width + 6).toFixed(1)}" y="${y + 13}">${name} ${whole(value)}</text>`);
    });
  });
  return `${parts.join('\n')}\n</svg>\n`;
}
