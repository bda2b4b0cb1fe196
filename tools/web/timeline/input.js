'use strict';
// Pointer, wheel, keys and buttons.

function listen(viewer) {
  const byId = (id) => document.getElementById(id);
  listenToPointer(viewer, viewer.canvas);
  listenToOverview(viewer, byId('overview'));
  byId('step').addEventListener('change', (event) => (event.target.value ? viewer.showStep(event.target.value) : viewer.whole()));
  byId('previous-step').addEventListener('click', () => viewer.stepBy(-1));
  byId('next-step').addEventListener('click', () => viewer.stepBy(1));
  byId('whole').addEventListener('click', () => viewer.whole());
  byId('actors').addEventListener('click', () => viewer.toggleActors());
  byId('letters').addEventListener('click', () => viewer.toggleLetters());
  byId('theme').addEventListener('click', () => viewer.toggleTheme());
  byId('help-button').addEventListener('click', () => { byId('help').hidden = !byId('help').hidden; });
  byId('next-match').addEventListener('click', () => viewer.match(true));
  byId('previous-match').addEventListener('click', () => viewer.match(false));
  let waiting = 0;
  byId('search').addEventListener('input', (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => viewer.search(event.target.value), 120);
  });
  byId('search').addEventListener('keydown', (event) => {
    if (event.key === 'Enter') {
      clearTimeout(waiting);
      viewer.search(event.target.value);
      viewer.match(!event.shiftKey);
    }
    if (event.key === 'Escape') viewer.canvas.focus();
    event.stopPropagation();
  });
  document.addEventListener('keydown', (event) => press(viewer, event));
  new ResizeObserver(() => viewer.resized()).observe(viewer.canvas);
}

function press(viewer, event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === 'SELECT' || event.target.tagName === 'INPUT') return;
  const byId = (id) => document.getElementById(id);
  const keys = {
    w: () => viewer.zoom(0.7), s: () => viewer.zoom(1 / 0.7), a: () => viewer.move(-0.15), d: () => viewer.move(0.15),
    ArrowLeft: () => viewer.neighbour(-1), ArrowRight: () => viewer.neighbour(1), ArrowUp: () => viewer.rowBy(-1), ArrowDown: () => viewer.rowBy(1),
    '[': () => viewer.stepBy(-1), ']': () => viewer.stepBy(1), f: () => viewer.whole(), h: () => viewer.toggleActors(), l: () => viewer.toggleLetters(),
    t: () => viewer.toggleTheme(), n: () => viewer.match(true), N: () => viewer.match(false),
    '/': () => byId('search').focus(), '?': () => { byId('help').hidden = !byId('help').hidden; },
    Enter: () => zoomTo(viewer, viewer.chosen),
    Escape: () => {
      byId('help').hidden = true;
      viewer.choose(-1);
    },
  };
  const key = event.key.length === 1 && event.key !== 'N' ? event.key.toLowerCase() : event.key;
  if (!keys[key] || (event.key === 'Enter' && event.target.tagName === 'BUTTON')) return;
  event.preventDefault();
  keys[key]();
}

function zoomTo(viewer, span) {
  if (span < 0) return;
  const {start, end} = viewer.timeline.spans, margin = Math.max(25, (end[span] - start[span]) * 0.15);
  viewer.setView(start[span] - margin, end[span] + margin);
}

function listenToPointer(viewer, canvas) {
  let drag = null;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener('pointerdown', (event) => {
    canvas.focus();
    const [x, y] = place(event);
    drag = {x, y, from: viewer.view.from, until: viewer.view.until, scroll: viewer.view.scroll, moved: false};
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointermove', (event) => {
    const [x, y] = place(event);
    if (!drag) {
      viewer.details.hover(viewer.spanAt(x, y), x, y, viewer.painter.width);
      return;
    }
    if (Math.abs(x - drag.x) + Math.abs(y - drag.y) > 4) drag.moved = true;
    if (!drag.moved) return;
    viewer.details.hover(-1);
    const by = (drag.x - x) / viewer.painter.chart * (drag.until - drag.from);
    viewer.setView(drag.from + by, drag.until + by);
    viewer.scroll(drag.scroll + drag.y - y - viewer.view.scroll);
  });
  canvas.addEventListener('pointerup', (event) => {
    const [x, y] = place(event), clicked = drag && !drag.moved;
    drag = null;
    if (clicked) click(viewer, x, y);
  });
  canvas.addEventListener('pointerleave', () => viewer.details.hover(-1));
  canvas.addEventListener('dblclick', (event) => zoomTo(viewer, viewer.spanAt(...place(event))));
  canvas.addEventListener('wheel', (event) => {
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 16 : 1;
    if (event.ctrlKey || event.metaKey) viewer.zoom(1.0015 ** (event.deltaY * unit), viewer.painter.time(place(event)[0]));
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) viewer.move((event.deltaX || event.deltaY) * unit / viewer.painter.chart);
    else viewer.scroll(event.deltaY * unit);
  }, {passive: false});
}

function click(viewer, x, y) {
  if (y < TOP) {
    const mark = (viewer.painter.marksInView || []).find((seen) => Math.abs(seen.x - x) < 8);
    if (mark && y > RULER + STEPS) viewer.details.showMark(mark.index);
    else if (y > RULER && y < RULER + STEPS) {
      const time = viewer.painter.time(x), step = viewer.timeline.header.steps.find(([, from, until]) => time >= from && time <= until);
      if (step) viewer.showStep(step[0]);
    }
    return;
  }
  const line = viewer.layout.lineAt(y - TOP + viewer.view.scroll);
  if (line && line.type === 'rank') {
    if (x < GUTTER) viewer.layout.fold(line.rank); else viewer.details.showClock(line.rank);
    viewer.scroll(0);
    return;
  }
  viewer.choose(viewer.spanAt(x, y));
}

function listenToOverview(viewer, overview) {
  let held = false;
  const go = (event) => {
    const box = overview.getBoundingClientRect(), at = (event.clientX - box.left) / box.width * viewer.length, half = (viewer.view.until - viewer.view.from) / 2;
    viewer.setView(at - half, at + half);
  };
  overview.addEventListener('pointerdown', (event) => {
    held = true;
    overview.setPointerCapture(event.pointerId);
    go(event);
  });
  overview.addEventListener('pointermove', (event) => { if (held) go(event); });
  overview.addEventListener('pointerup', () => { held = false; });
}
