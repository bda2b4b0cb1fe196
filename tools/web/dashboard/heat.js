'use strict';
// Step time by rank: a column a step, a row a rank; pale at the median of all, dark where it took longer.

class HeatMap {
  constructor(canvas, tip, scale) {
    Object.assign(this, {canvas, tip, scale, times: []});
    canvas.addEventListener('pointermove', (event) => this.hover(event.offsetX, event.offsetY));
    canvas.addEventListener('pointerleave', () => { this.tip.textContent = ''; });
  }

  /// [[step, [[rank, seconds], …]], …]
  show(times) {
    this.times = times;
    this.ranks = [...new Set(times.flatMap(([, ranks]) => ranks.map(([rank]) => rank)))].sort((a, b) => a - b);
    const all = times.flatMap(([, ranks]) => ranks.map(([, seconds]) => seconds)).sort((a, b) => a - b);
    this.median = all[Math.floor(all.length / 2)] || 0;
    this.scale.textContent = all.length ? `median ${(1e3 * this.median).toFixed(2)} ms, longest ${(1e3 * all[all.length - 1]).toFixed(2)} ms, last ${times.length} steps` : '';
    this.draw();
  }

  colour(seconds) {
    const late = Math.max(-1, Math.min(1, Math.log2(seconds / this.median) / 1.5));
    return late < 0 ? `hsl(210 60% ${78 + 12 * -late}%)` : `hsl(${210 - 190 * Math.min(1, late * 1.4)} 75% ${78 - 34 * late}%)`;
  }

  draw() {
    const row = Math.max(4, Math.min(20, 320 / Math.max(1, this.ranks.length))), ratio = window.devicePixelRatio || 1;
    const width = this.canvas.clientWidth, height = row * this.ranks.length;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = width * ratio;
    this.canvas.height = Math.max(1, height * ratio);
    const c = this.canvas.getContext('2d');
    c.scale(ratio, ratio);
    c.font = '11px system-ui, sans-serif';
    c.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('--faint');
    const each = row >= 12 ? 1 : Math.ceil(12 / row);
    this.ranks.forEach((rank, i) => { if (i % each === 0) c.fillText(`rank ${rank}`, 0, i * row + row / 2 + 4, 52); });
    this.cell = Math.max(1, (width - 58) / Math.max(60, this.times.length));
    this.row = row;
    const place = new Map(this.ranks.map((rank, i) => [rank, i]));
    this.times.forEach(([, ranks], column) => {
      for (const [rank, seconds] of ranks) {
        c.fillStyle = this.colour(seconds);
        c.fillRect(58 + column * this.cell, place.get(rank) * row, Math.max(1, this.cell - (this.cell > 4 ? 1 : 0)), row - (row > 8 ? 1 : 0));
      }
    });
  }

  hover(x, y) {
    const entry = this.times[Math.floor((x - 58) / this.cell)], rank = this.ranks[Math.floor(y / this.row)];
    const found = entry && entry[1].find(([of]) => of === rank);
    this.tip.textContent = found ? `rank ${rank}, step ${entry[0]}: ${(1e3 * found[1]).toFixed(2)} ms` : '';
  }
}
