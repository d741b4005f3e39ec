//! Draws recorded walks as one SVG: a lane for each thread, a box for each lock while it is held, an arrow for each message.
//!
//! The lane of the first thread is on the left. Work that is handed over goes on in the next lane to the right, and an answer
//! comes back to the first one. Everything drawn was recorded: a picture cannot show a lock that the code does not take.

use std::fmt::Write as _;

use sync::walk::WalkStep;

const MARGIN: usize = 16;
const LANE: usize = 470;
/// Between two lines of text.
const LINE: usize = 16;
/// A line of text has at most this many characters.
const LETTERS: usize = 58;
/// A box of a lock is this much narrower on each side than the box around it.
const INSET: usize = 10;
/// Colours follow the reader's scheme; the picture has no background of its own.
const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#1c2733}.file{font-size:11px;fill:#5d6b7a}.title{font-size:16px;\
    font-weight:600}.lane{font-weight:600}.lock{fill:#d9822b;fill-opacity:.13;stroke:#d9822b}.name{font-size:11px;\
    fill:#a85a10;font-weight:600}.life{stroke:#9aa7b4;stroke-dasharray:2 5}.message{stroke:#2f6fb5;stroke-width:2}.head{\
    fill:#2f6fb5}.says{font-size:12px;fill:#2f6fb5}@media(prefers-color-scheme:dark){text{fill:#e3e8ee}.file{fill:#93a1b0}\
    .name{fill:#f0a75c}.says{fill:#7fb2ea}.message{stroke:#7fb2ea}.head{fill:#7fb2ea}}";

/// One recorded walk, with the title above it and the name of the thread that begins it.
pub struct Walked<'a> {
    pub title: &'a str,
    pub thread: &'a str,
    pub steps: &'a [WalkStep],
}

/// The picture of `walks`, one below the other. `about` is its alternative text.
pub fn draw(about: &str, walks: &[Walked]) -> String {
    let mut drawing = Drawing::default();
    for walked in walks {
        drawing.walk(walked);
    }
    let (width, height) = (drawing.lanes.max(1) * LANE + 2 * MARGIN, drawing.y + MARGIN);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\">\n<title>{about}</title>\n<style>{STYLE}</style>\n{}{}</svg>\n",
        drawing.boxes, drawing.text
    )
}

/// A lock that is held where the drawing has got to.
struct Held {
    lane: usize,
    top: usize,
}

#[derive(Default)]
struct Drawing {
    /// How far down it has got.
    y: usize,
    lane: usize,
    lanes: usize,
    held: Vec<Held>,
    /// What lies behind the text.
    boxes: String,
    text: String,
}

impl Drawing {
    fn walk(&mut self, walked: &Walked) {
        self.y += MARGIN + LINE;
        self.say(MARGIN, "title", walked.title);
        (self.lane, self.y) = (0, self.y + LINE + 8);
        self.lanes = self.lanes.max(1);
        self.say(MARGIN + 4, "lane", walked.thread);
        let top = self.y + 6;
        self.y += 12;
        let mut tops = vec![top];
        for step in walked.steps {
            self.step(step);
            if self.lane == tops.len() {
                tops.push(self.y);
            }
        }
        self.y += 10;
        tops.into_iter().enumerate().for_each(|(lane, top)| self.life(lane, top));
    }

    fn step(&mut self, step: &WalkStep) {
        match step {
            WalkStep::Note { file, text } => self.note(file, text),
            WalkStep::Take(class) => self.take(&class.to_string()),
            WalkStep::Release(_) => self.release(),
            WalkStep::HandOff => {
                self.arrow(self.lane, self.lane + 1, "message");
                self.lane += 1;
                self.lanes = self.lanes.max(self.lane + 1);
                self.say(self.left() + 4, "lane", "a thread that takes the message");
                self.y += 4;
            }
            WalkStep::Answer => {
                self.arrow(self.lane, 0, "answer");
                self.lane = 0;
            }
        }
    }

    /// The left edge of the text of the present lane.
    fn left(&self) -> usize {
        MARGIN + self.lane * LANE + INSET * (self.held.len() + 1)
    }

    fn say(&mut self, x: usize, class: &str, text: &str) {
        let _ = writeln!(self.text, "<text class=\"{class}\" x=\"{x}\" y=\"{}\">{}</text>", self.y, escaped(text));
    }

    fn note(&mut self, file: &str, text: &str) {
        self.y += LINE;
        let x = self.left();
        self.say(x, "file", &super::walk::place(file));
        for line in wrapped(text) {
            self.y += LINE;
            self.say(x, "note", &line);
        }
        self.y += 6;
    }

    fn take(&mut self, class: &str) {
        self.y += 6;
        self.held.push(Held { lane: self.lane, top: self.y });
        self.y += 14;
        self.say(self.left(), "name", &format!("lock: {class}"));
        self.y += 2;
    }

    fn release(&mut self) {
        let Some(Held { lane, top }) = self.held.pop() else { return };
        self.y += 4;
        let inset = INSET * (self.held.len() + 1) - 4;
        let (x, width, height) = (MARGIN + lane * LANE + inset, LANE - 2 * inset - 8, self.y - top);
        // What is drawn first lies behind: a box around others is finished after them.
        let around =
            format!("<rect class=\"lock\" x=\"{x}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" rx=\"5\"/>\n");
        self.boxes.insert_str(0, &around);
        self.y += 4;
    }

    fn arrow(&mut self, from: usize, to: usize, what: &str) {
        self.y += LINE + 10;
        let middle = |lane: usize| MARGIN + lane * LANE;
        let (x, end, y) = (middle(from), middle(to), self.y);
        let tip = if to > from { end - 9 } else { end + 9 };
        let _ = writeln!(self.boxes, "<line class=\"message\" x1=\"{x}\" y1=\"{y}\" x2=\"{tip}\" y2=\"{y}\"/>");
        let _ = writeln!(self.boxes, "<path class=\"head\" d=\"M{end} {y}L{tip} {}L{tip} {}Z\"/>", y - 5, y + 5);
        self.y -= 6;
        self.say((x + end) / 2, "says", what);
        self.y += LINE + 6;
    }

    /// The dashed line of a thread, from `top` down to here.
    fn life(&mut self, lane: usize, top: usize) {
        let (x, y) = (MARGIN + lane * LANE, self.y);
        let _ = writeln!(self.boxes, "<line class=\"life\" x1=\"{x}\" y1=\"{top}\" x2=\"{x}\" y2=\"{y}\"/>");
    }
}

fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is a first line");
        if !last.is_empty() && last.len() + word.len() >= LETTERS {
            lines.push(word.to_owned());
        } else {
            *last = format!("{last} {word}").trim_start().to_owned();
        }
    }
    lines
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
