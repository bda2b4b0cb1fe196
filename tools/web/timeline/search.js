'use strict';
// "gather L3 step:7 rank:1 lane:comm unit:2 micro:0 >5ms <1s outcome:failed": words are looked for in names by Sifter, all must hold.
// A run has few names and many spans: the names are searched, and the spans go by the number of their name.

const UNITS = {ns: 1, us: 1e3, 'µs': 1e3, ms: 1e6, s: 1e9};

function parseSearch(text) {
  const wanted = {words: [], fields: {}, over: -1, under: Infinity};
  for (const token of text.toLowerCase().split(/\s+/).filter(Boolean)) {
    const limit = token.match(/^([<>])([\d.]+)(ns|us|µs|ms|s)$/), field = token.match(/^(step|rank|lane|unit|micro|epoch|outcome):(.+)$/);
    if (limit && limit[1] === '>') wanted.over = Number(limit[2]) * UNITS[limit[3]];
    else if (limit) wanted.under = Number(limit[2]) * UNITS[limit[3]];
    else if (field) wanted.fields[field[1]] = field[2];
    else wanted.words.push(token);
  }
  return wanted;
}

/// "7" or "5..9".
function rangeOf(text) {
  const [from, until] = text.split('..');
  return [Number(from), Number(until === undefined ? from : until)];
}

/// A byte a name: whether it holds all words.
function searchNames(timeline, words) {
  const {names} = timeline.header, found = new Uint8Array(names.length);
  timeline.sifter = timeline.sifter || new Sifter(names.map((name) => ({name})), {diacritics: false});
  // A word may also be the whole of what is asked of a name, as in "L1", which is not L12.
  const exact = words.filter((word) => /^l\d+$/.test(word));
  for (const {id} of timeline.sifter.search(words.join(' '), {fields: ['name'], conjunction: 'and'}).items) {
    const parts = exact.length > 0 ? names[id].toLowerCase().split(/\s+/) : [];
    if (exact.every((word) => parts.includes(word))) found[id] = 1;
  }
  return found;
}

/// {mask: a byte a span, list: the matches in the order of time} or null for an empty search.
function searchSpans(timeline, text) {
  if (!text.trim()) return null;
  const {header, spans} = timeline, wanted = parseSearch(text);
  const named = searchNames(timeline, wanted.words);
  const numbers = ['step', 'micro', 'unit', 'epoch'].filter((key) => wanted.fields[key]).map((key) => [spans[key], ...rangeOf(wanted.fields[key])]);
  const outcome = wanted.fields.outcome === undefined ? -1 : ['ok', 'failed', 'halted'].indexOf(wanted.fields.outcome);
  const mask = new Uint8Array(spans.start.length);
  let count = 0;
  for (const row of header.rows) {
    if (wanted.fields.rank !== undefined && !header.ranks[row.rank].label.endsWith(wanted.fields.rank)) continue;
    if (wanted.fields.lane !== undefined && !row.track.startsWith(wanted.fields.lane)) continue;
    for (let i = row.start; i < row.start + row.count; ++i) {
      if (!named[spans.name[i]]) continue;
      const length = spans.end[i] - spans.start[i];
      if (length <= wanted.over || length >= wanted.under || (outcome >= 0 && spans.outcome[i] !== outcome)) continue;
      if (numbers.some(([values, from, until]) => values[i] < from || values[i] > until)) continue;
      mask[i] = 1;
      ++count;
    }
  }
  return {mask, count};
}

/// The match after (or before) a place in time; −1 without one. Ties go by their number.
function nextMatch(timeline, matches, from, forward) {
  const {start} = timeline.spans;
  const at = from < 0 ? (forward ? -Infinity : Infinity) : start[from];
  let best = -1;
  for (let i = 0; i < matches.mask.length; ++i) {
    if (!matches.mask[i] || i === from) continue;
    const later = start[i] > at || (start[i] === at && i > from);
    if (later !== forward) continue;
    if (best < 0) best = i;
    else if (forward ? start[i] < start[best] : start[i] >= start[best]) best = i;
  }
  return best;
}
