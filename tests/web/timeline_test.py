import json
import re
import unittest

from browser import FLIGHT, BrowserTest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

SMALL, MILLION = 20_000, 1_000_000


class TimelineTest(BrowserTest):
    def small(self):
        return self.page("small.html", SMALL)

    def press(self, *keys):
        canvas = self.driver.find_element(By.ID, "canvas")
        self.driver.execute_script("arguments[0].focus()", canvas)
        ActionChains(self.driver).send_keys(*keys).perform()

    def view(self):
        return self.run_js("return {...viewer.view, chosen: viewer.chosen};")

    def text(self, identity):
        return self.driver.find_element(By.ID, identity).text

    def test_a_page_is_one_file_that_asks_for_no_other(self):
        page = self.small().read_text()
        self.assertEqual(re.findall(r"""(?:src|href)=["'][^"']+""", page), [])
        self.assertNotIn("http://", page)
        self.assertNotIn("https://", page)
        self.assertEqual(self.run_js("return performance.getEntriesByType('resource').map((entry) => entry.name);"), [])

    def test_rows_are_ranks_and_lanes_and_each_is_painted_in_its_colours(self):
        self.small()
        lines = self.run_js("return viewer.layout.lines.map((line) => [line.type, line.label]);")
        self.assertEqual([label for kind, label in lines if kind == "rank"], [f"rank {rank}" for rank in range(4)])
        self.assertEqual(lines[1:5], [["row", "compute"], ["row", "comm"], ["counter", "weights"], ["counter", "gradients"]])
        self.keep_picture("timeline-whole.png")
        self.run_js("viewer.showStep(5); await new Promise(requestAnimationFrame); await new Promise(requestAnimationFrame);")
        self.keep_picture("timeline-step.png")
        colours = self.run_js("""
            const {spans, header, kinds, kindOfName} = viewer.timeline, found = {};
            for (const line of viewer.layout.lines.filter((line) => line.type === 'row' && line.row.track === 'compute')) {
              const first = viewer.painter.firstIn(line.row);
              for (let i = first; i < line.row.start + line.row.count && spans.start[i] < viewer.view.until; ++i) {
                const x = Math.round((viewer.painter.x(spans.start[i]) + viewer.painter.x(spans.end[i])) / 2), y = line.y - viewer.view.scroll + TOP + 3;
                if (x < GUTTER + 2 || x > viewer.painter.width - 2 || y > viewer.painter.height) continue;
                const kind = kinds[kindOfName[spans.name[i]]], pixel = viewer.painter.context.getImageData(x, y, 1, 1).data;
                found[kind] = found[kind] || new Set();
                found[kind].add([...pixel].slice(0, 3).join());
              }
            }
            return Object.fromEntries(Object.entries(found).map(([kind, seen]) => [kind, [...seen]]));""")
        self.assertEqual(colours, {"forward": ["76,142,219"], "backward": ["239,138,60"]})

    def test_what_is_clicked_is_described_and_its_letters_lead_on(self):
        self.small()
        x, y = self.run_js("""
            viewer.showStep(2); viewer.drawNow();
            const line = viewer.layout.lines.find((line) => line.type === 'row' && line.row.track === 'compute' && line.rank === 0), {spans, header} = viewer.timeline;
            const span = [...Array(line.row.count).keys()].map((i) => line.row.start + i).find((i) => spans.step[i] === 2 && header.names[spans.name[i]] === 'backward L7');
            const box = viewer.canvas.getBoundingClientRect();
            return [box.left + viewer.painter.x((spans.start[span] + spans.end[span]) / 2), box.top + line.y - viewer.view.scroll + TOP + 8];""")
        ActionChains(self.driver).move_by_offset(0, 0).perform()
        canvas = self.driver.find_element(By.ID, "canvas")
        box = canvas.rect
        ActionChains(self.driver).move_to_element_with_offset(canvas, int(x - box["x"] - box["width"] / 2), int(y - box["y"] - box["height"] / 2)).pause(0.05).perform()
        self.assertRegex(self.text("tip"), r"backward L7 · step 2 · \d+\.\d+ µs")
        ActionChains(self.driver).click().perform()
        details = self.text("details")
        self.assertIn("backward L7", details)
        self.assertIn("rank 0, compute", details)
        self.assertIn("step\n2, micro-batch 0, unit 7, epoch 1", details.replace("step 2", "step\n2"))
        self.keep_picture("timeline-details.png")
        # The letter that it sent is its actor's; from the handler of that letter the panel leads back.
        self.run_js("""
            const {letters, header} = viewer.timeline, end = viewer.timeline.spans.end[viewer.chosen];
            const letter = letters.sent.findIndex((at, i) => at === end && header.names[letters.name[i]] === 'GradientReady');
            viewer.show(viewer.details.spanAt(letters.to[letter], letters.sent[letter] + letters.way[letter]));""")
        self.assertIn("← GradientReady from rank 0 compute actor", self.text("details"))

    def test_keys_zoom_move_and_walk(self):
        self.small()
        whole = self.view()
        self.press("w", "w")
        near = self.view()
        self.assertAlmostEqual((near["until"] - near["from"]) / (whole["until"] - whole["from"]), 0.49, places=3)
        self.press("d")
        self.assertGreater(self.view()["from"], near["from"])
        self.press("f", "]")
        first = self.view()
        self.press("]")
        self.assertGreater(self.view()["from"], first["from"])
        self.press("[")
        self.assertEqual(self.view()["from"], first["from"])
        self.run_js("viewer.choose(viewer.timeline.header.rows[0].start + 5);")
        self.press(Keys.ARROW_RIGHT)
        self.assertEqual(self.view()["chosen"], self.run_js("return viewer.timeline.header.rows[0].start + 6;"))
        self.press(Keys.ESCAPE)
        self.assertEqual(self.view()["chosen"], -1)
        self.press("?")
        self.assertIn("the whole timeline", self.text("help"))

    def test_a_timeline_that_was_cut_to_some_steps_begins_with_these_in_view(self):
        self.small()
        steps = self.run_js("return viewer.timeline.header.steps;")[2:5]
        shown = self.run_js("""
            const {header} = viewer.timeline;
            header.cut = true;
            header.steps = header.steps.slice(2, 5);
            const cut = start(viewer.timeline);
            return cut.view;""")
        margin = 0.06 * (steps[-1][2] - steps[0][1])
        self.assertAlmostEqual(shown["from"], steps[0][1] - margin, delta=1)
        self.assertAlmostEqual(shown["until"], steps[-1][2] + margin, delta=1)

    def test_a_wheel_with_ctrl_zooms_where_the_pointer_is(self):
        self.small()
        kept, moved = self.run_js("""
            const box = viewer.canvas.getBoundingClientRect(), x = 700, before = viewer.painter.time(x);
            viewer.canvas.dispatchEvent(new WheelEvent('wheel', {deltaY: -400, ctrlKey: true, clientX: box.left + x, clientY: box.top + 200, cancelable: true}));
            viewer.drawNow();
            return [Math.abs(viewer.painter.time(x) - before) / (viewer.view.until - viewer.view.from), (viewer.view.until - viewer.view.from) / viewer.length];""")
        self.assertLess(kept, 1e-6)
        self.assertLess(moved, 0.6)

    def test_search_finds_what_was_asked_for_and_goes_there(self):
        self.small()
        field = self.driver.find_element(By.ID, "search")
        field.send_keys("gather l3 rank:1 step:2", Keys.ENTER)
        self.assertEqual(self.text("matches"), "2 found")
        self.assertIn("gather L3", self.text("details"))
        self.assertIn("rank 1, comm", self.text("details"))
        first = self.view()["chosen"]
        field.send_keys(Keys.ENTER)
        self.assertNotEqual(self.view()["chosen"], first)
        self.keep_picture("timeline-search.png")
        field.clear()
        field.send_keys("nothing of this name", Keys.ENTER)
        self.assertEqual(self.text("matches"), "0 found")
        self.assertEqual(self.run_js("return searchSpans(viewer.timeline, 'backward >5s');")["count"], 0)
        for words in (["ward"], ["L1"], ["L1", "backward"], ["GATHER", "l7"], ["step:2"], ["(", ".*"], ["l", "g"]):
            found, held = self.run_js(f"""
                const words = {json.dumps(words)}, {{header, spans}} = viewer.timeline, plain = words.filter((word) => !word.includes(':')).map((word) => word.toLowerCase());
                const holds = (name) => plain.every((word) => (/^l[0-9]+$/.test(word) ? name.split(' ').includes(word) : name.includes(word)));
                let held = 0;
                for (let i = 0; i < spans.start.length; ++i) held += holds(header.names[spans.name[i]].toLowerCase()) && (plain.length > 0 || spans.step[i] === 2);
                return [searchSpans(viewer.timeline, words.join(' ')).count, held];""")
            self.assertEqual(found, held, words)
            self.assertEqual(found == 0, "(" in words, words)

    def test_faults_and_changes_are_marked_and_say_what_they_were(self):
        self.small()
        self.run_js("viewer.setView(20e6, 70e6); viewer.drawNow();")
        x, y = self.run_js("""
            const mark = viewer.painter.marksInView[0];
            return [mark.x, RULER + STEPS + 8];""")
        self.keep_picture("timeline-marks.png")
        self.run_js(f"click(viewer, {x}, {y});")
        self.assertIn("fault_fired", self.text("details"))
        self.assertIn("reduce L5", self.text("details"))
        self.run_js("const line = viewer.layout.lines.find((line) => line.type === 'rank' && line.rank === 1); click(viewer, GUTTER + 50, line.y - viewer.view.scroll + TOP + 5);")
        self.assertIn("off by 1.500 ms ± 31.000 µs", self.text("details"))

    def test_letters_are_arrows_between_rows(self):
        self.small()
        arrows = self.run_js("""
            let drawn = [];
            const draw = viewer.painter.drawArrow;
            viewer.painter.drawArrow = function (i, ...rest) { drawn.push(i); return draw.call(this, i, ...rest); };
            viewer.showStep(2); viewer.zoom(0.1); viewer.drawNow();
            const seen = drawn.length;
            drawn = [];
            viewer.toggleLetters(); viewer.drawNow();
            return [seen, drawn.length, viewer.painter.lettersInView];""")
        self.assertGreater(arrows[0], 10)
        self.assertEqual(arrows[1], 0)
        self.run_js("viewer.toggleLetters(); viewer.drawNow();")
        self.keep_picture("timeline-letters.png")

    def test_a_frame_of_a_million_spans_costs_what_the_screen_shows(self):
        """Counted, not timed: how much a frame looks at and draws, over a flight through the whole of it. benchmarks/run timeline_page has the times."""
        file = self.page("million.html", MILLION)
        counts = self.run_js(FLIGHT + """
            const looked = [], drawn = [], painter = viewer.painter;
            let now = 0, boxes = 0;
            const block = painter.addBlock, rect = painter.context.fillRect;
            painter.addBlock = function (...given) { ++now; return block.apply(this, given); };
            painter.context.fillRect = function (...given) { ++boxes; return rect.apply(this, given); };
            for (let i = 0; i < FRAMES; ++i) {
              now = boxes = 0;
              fly(i);
              viewer.drawNow();
              looked.push(now);
              drawn.push(boxes);
            }
            return [Math.max(...looked), Math.max(...drawn), viewer.timeline.header.spans];""")
        self.keep_picture("timeline-million.png")
        self.assertGreaterEqual(counts[2], MILLION)
        self.assertLess(counts[0], 150_000, "blocks of the levels of detail")
        self.assertLess(counts[1], 8_000, "boxes")
        self.assertLess(file.stat().st_size, 60e6)


if __name__ == "__main__":
    unittest.main()
