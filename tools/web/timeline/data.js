'use strict';
// The packed timeline (src/trace/pack_timeline.hpp) as typed arrays. Times are nanoseconds since the first event, as doubles.

function bytesOfBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; ++i) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

function column(header, buffer, name) {
  const told = header.columns[name];
  if (!told) return new Uint32Array(0);
  const Kind = {u8: Uint8Array, u16: Uint16Array, u32: Uint32Array}[told.type];
  return new Kind(buffer, told.offset, told.length);
}

/// low + 2^32 · high, summed up from `start` on for each of `runs` where they are differences.
function timesOf(low, high, runs) {
  const times = new Float64Array(low.length);
  for (const [start, count] of runs) {
    let sum = 0;
    for (let i = start; i < start + count; ++i) {
      sum += low[i] + high[i] * 4294967296;
      times[i] = sum;
    }
  }
  return times;
}

const BLOCK = 16;

/// Levels of detail of a row: each block stands for 16 of the level below, with its extent, how much of it is busy, and the kind that
/// takes most of it.
function levelsOf(row, spans, kindOfName) {
  const levels = [];
  let count = row.count;
  if (count < 4 * BLOCK) return levels;
  let below = null;
  while (count > BLOCK) {
    const blocks = Math.ceil(count / BLOCK);
    const level = {start: new Float64Array(blocks), end: new Float64Array(blocks), busy: new Float64Array(blocks), kind: new Uint8Array(blocks)};
    const weight = new Float64Array(256);
    for (let b = 0; b < blocks; ++b) {
      const from = b * BLOCK, until = Math.min(count, from + BLOCK);
      let busy = 0, best = 0, most = -1;
      for (let i = from; i < until; ++i) {
        const length = below ? below.busy[i] : spans.end[row.start + i] - spans.start[row.start + i];
        const kind = below ? below.kind[i] : kindOfName[spans.name[row.start + i]];
        busy += length;
        weight[kind] += length + 1;
        if (weight[kind] > most) {
          most = weight[kind];
          best = kind;
        }
      }
      for (let i = from; i < until; ++i) weight[below ? below.kind[i] : kindOfName[spans.name[row.start + i]]] = 0;
      level.start[b] = below ? below.start[from] : spans.start[row.start + from];
      level.end[b] = below ? below.end[until - 1] : spans.end[row.start + until - 1];
      level.busy[b] = busy;
      level.kind[b] = best;
    }
    levels.push(level);
    below = level;
    count = blocks;
  }
  return levels;
}

/// "forward" of "forward L3": what operations are coloured by.
function kindsOf(names) {
  const kinds = [], ids = new Map();
  const kindOfName = names.map((name) => {
    const space = name.indexOf(' ');
    const kind = space < 0 ? name : name.slice(0, space);
    if (!ids.has(kind)) {
      ids.set(kind, Math.min(kinds.length, 255));
      if (kinds.length < 255) kinds.push(kind);
    }
    return ids.get(kind);
  });
  return {kinds, kindOfName: Uint8Array.from(kindOfName)};
}

async function loadTimeline() {
  const header = JSON.parse(document.getElementById('timeline-header').textContent);
  const holder = document.getElementById('timeline-data');
  const packed = bytesOfBase64(holder.textContent.trim());
  holder.remove();
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
  const buffer = await new Response(stream).arrayBuffer();
  if (buffer.byteLength !== header.bytes) throw new Error(`the timeline is cut short: ${buffer.byteLength} of ${header.bytes} bytes`);
  const get = (name) => column(header, buffer, name);
  const start = timesOf(get('span.time'), get('span.time.high'), header.rows.map((row) => [row.start, row.count]));
  const lengthLow = get('span.length'), lengthHigh = get('span.length.high');
  const end = new Float64Array(start.length);
  for (let i = 0; i < end.length; ++i) end[i] = start[i] + lengthLow[i] + lengthHigh[i] * 4294967296;
  const spans = {start, end, queued: get('span.queued'), name: get('span.name'), outcome: get('span.outcome'), step: get('span.step'),
                 micro: get('span.micro'), unit: get('span.unit'), epoch: get('span.epoch')};
  const letterLow = get('letter.time');
  const letters = {sent: timesOf(letterLow, get('letter.time.high'), [[0, letterLow.length]]), way: get('letter.way'), from: get('letter.from'),
                   to: get('letter.to'), name: get('letter.name'), step: get('letter.step')};
  let longest = 0;
  for (let i = 0; i < letters.way.length; ++i) longest = Math.max(longest, letters.way[i]);
  letters.longest = longest;
  const counterTimes = timesOf(get('counter.time'), get('counter.time.high'), header.counters.map((counter) => [counter.start, counter.count]));
  const {kinds, kindOfName} = kindsOf(header.names);
  for (const row of header.rows) row.levels = levelsOf(row, spans, kindOfName);
  return {header, spans, letters, counters: {time: counterTimes, value: get('counter.value')}, kinds, kindOfName};
}

/// First place in [from, until) whose value is greater than `value`; the values rise.
function upperBound(values, value, from, until) {
  while (from < until) {
    const middle = (from + until) >>> 1;
    if (values[middle] > value) until = middle; else from = middle + 1;
  }
  return from;
}

function timeText(nanos, digits = 3) {
  const size = Math.abs(nanos);
  if (size < 1e3) return `${nanos.toFixed(0)} ns`;
  if (size < 1e6) return `${(nanos / 1e3).toFixed(digits)} µs`;
  if (size < 1e9) return `${(nanos / 1e6).toFixed(digits)} ms`;
  return `${(nanos / 1e9).toFixed(digits)} s`;
}
