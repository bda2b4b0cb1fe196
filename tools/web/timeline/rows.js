'use strict';
// What stands under what: for each rank a heading, its lanes, its slots, its actors. Heights in CSS pixels.

const HEIGHT = {rank: 24, lane: 22, actor: 13, counter: 24};
const LANES = ['compute', 'comm', 'optimizer', 'copy', 'storage', 'disk'];
const PALETTE = {
  forward: '#4c8edb', backward: '#ef8a3c', loss: '#c9b037', gather: '#2fa58e', reduce: '#9168cf', 'all-reduce': '#7b4fbf', verdict: '#d0548f', optimize: '#d9b23c',
  optimizer: '#d9b23c', accumulate: '#b9744a', scales: '#5fb3c8', snapshot: '#8d6e63', copy: '#8d6e63', save: '#8d6e63', keep: '#a1887f', load: '#7f9bb3', batch: '#7f9bb3',
  send: '#a9b4c0', receive: '#8fa3b8',
};
const OTHERS = ['#7c93ab', '#6fa8a0', '#a48fb8', '#b39b77', '#8aa66f', '#b57f8c', '#7f86b8', '#94a0a8'];

function rgbOf(hex) {
  return [parseInt(hex.slice(1, 3), 16), parseInt(hex.slice(3, 5), 16), parseInt(hex.slice(5, 7), 16)];
}

function coloursOf(kinds) {
  let next = 0;
  return kinds.map((kind) => rgbOf(PALETTE[kind] || OTHERS[next++ % OTHERS.length]));
}

const isActor = (track) => track.endsWith(' actor') || track === 'transport' || track === 'process';

function orderOf(track) {
  const lane = LANES.indexOf(track);
  if (lane >= 0) return lane;
  return isActor(track) ? 100 : 50;
}

/// The lines of the picture from top to bottom: {type, y, height, rank, row | counter, label}; and for each row of the data the
/// middle of its line, or of its rank's heading where it is not shown.
class Layout {
  constructor(timeline) {
    this.timeline = timeline;
    this.folded = new Set();
    this.showActors = timeline.header.ranks.length <= 5;
    this.build();
  }

  build() {
    const {header} = this.timeline;
    this.lines = [];
    this.middleOfRow = new Float64Array(header.rows.length);
    this.lineOfRow = new Array(header.rows.length).fill(null);
    let y = 0;
    const add = (line) => {
      line.y = y;
      y += line.height;
      this.lines.push(line);
      return line;
    };
    header.ranks.forEach((rank, index) => {
      const rows = header.rows.map((row, id) => ({row, id})).filter(({row}) => row.rank === index);
      const counters = header.counters.filter((counter) => counter.rank === index);
      if (rows.length === 0 && counters.length === 0) return;
      const heading = add({type: 'rank', height: HEIGHT.rank, rank: index, label: rank.label});
      for (const {id} of rows) this.middleOfRow[id] = heading.y + heading.height / 2;
      if (this.folded.has(index)) return;
      rows.sort((a, b) => orderOf(a.row.track) - orderOf(b.row.track) || a.id - b.id);
      const place = ({row, id}) => {
        const actor = isActor(row.track);
        const line = add({type: 'row', height: actor ? HEIGHT.actor : HEIGHT.lane, rank: index, row, id, actor, label: row.depth === 0 ? row.track : ''});
        this.middleOfRow[id] = line.y + line.height / 2;
        this.lineOfRow[id] = line;
      };
      rows.filter(({row}) => !isActor(row.track)).forEach(place);
      for (const counter of counters) add({type: 'counter', height: HEIGHT.counter, rank: index, counter, label: counter.edge});
      if (this.showActors) rows.filter(({row}) => isActor(row.track)).forEach(place);
    });
    this.height = y;
  }

  fold(rank) {
    if (!this.folded.delete(rank)) this.folded.add(rank);
    this.build();
  }

  lineAt(y) {
    return this.lines.find((line) => y >= line.y && y < line.y + line.height) || null;
  }
}

const MARKS = [[/^(fault|fault_fired|recovering|respawn|not_sealed|flight_record)/, '#d93636'], [/^(changed)/, '#2f7de1'], [/^(epoch|ready|recovered|joined)/, '#2d9d5b'],
               [/^(skip|stop_requested)/, '#d98a1f']];
function colourOfMark(text) {
  const found = MARKS.find(([pattern]) => pattern.test(text));
  return found ? found[1] : '#8794a1';
}
