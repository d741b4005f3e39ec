//! Charts as SVG text: lines with error bars over a logarithmic axis, and grouped bars with error bars.
//!
//! Colours are CSS classes ("s0" to "s9", "kernel"), never values: so one document suits a light screen, a dark screen
//! and paper. Lines are labelled at their ends and distinguished by marker and colour, so they can be read without
//! either. Text from names is escaped here; the page inserts the result unchanged. The marks of one family of
//! architectures are in groups with the attribute `data-family`, so that the page can hide them.

use std::fmt::Write;

use crate::units::significant;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 326.0;
/// Colours in the style sheet. Lines beyond them have hollow markers.
const COLOURS: usize = 10;
/// The width of a letter of a label, about.
const LETTER: f64 = 6.6;
/// Between the labels of two lines.
const LABEL: f64 = 16.0;
/// Height below the chart for labels at an angle, for each letter.
const SLOPE: f64 = 4.4;

/// A value with the half-width of its interval, where known.
pub type Value = (f64, Option<f64>);

/// One line of a line chart.
pub struct Line {
    /// Shown at the line's end.
    pub label: String,
    /// The family with which a reader selects the line; empty: the line is always drawn.
    pub family: String,
    /// Drawn dashed and in a neutral colour.
    pub is_kernel: bool,
    /// Values from elsewhere (a paper) for the line at this place: drawn dotted in its colour, with hollow markers
    /// and without a label.
    pub elsewhere_of: Option<usize>,
    /// Points by ascending x, which is above 0.
    pub points: Vec<(f64, Value)>,
}

/// Lines over a logarithmic x axis; y begins at 0.
pub struct LineChart<'a> {
    /// Below the axis.
    pub x_label: &'a str,
    /// Above the axis.
    pub y_label: &'a str,
    /// In the order of their colours.
    pub lines: Vec<Line>,
}

/// Groups of bars, one for each category, with one bar for each series.
pub struct BarChart<'a> {
    /// Above the axis.
    pub y_label: &'a str,
    /// Names of the series, in the legend above the bars.
    pub series: Vec<String>,
    /// Name and values of each category, as many as there are series; `None` where nothing was measured.
    pub categories: Vec<(String, Vec<Option<Value>>)>,
}

/// One bar for each category, in which the values of all series stand on each other.
pub(super) struct StackedChart<'a> {
    pub y_label: &'a str,
    /// Names of the series, in the legend above the bars.
    pub series: Vec<&'a str>,
    /// Name and values of each category, as many as there are series.
    pub categories: Vec<(String, Vec<f64>)>,
}

/// Linear y axis from 0 to a round number at or above the largest value.
struct Vertical {
    top: f64,
    step: f64,
}

impl Vertical {
    fn reaching(values: impl Iterator<Item = Value>) -> Vertical {
        let highest = values.map(|(y, ci)| y + ci.unwrap_or(0.0)).filter(|y| y.is_finite()).fold(0.0, f64::max);
        let highest = if highest > 0.0 { highest } else { 1.0 };
        let rough = highest / 5.0;
        let decade = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * decade).into_iter().find(|step| *step >= rough * 0.999);
        let step = step.unwrap_or(decade * 10.0);
        Vertical { top: (highest / step).ceil() * step, step }
    }

    fn at(&self, y: f64) -> f64 {
        BOTTOM - (BOTTOM - TOP) * (y / self.top).clamp(0.0, 1.0)
    }

    /// Grid lines with their figures, and the axis' name.
    fn draw(&self, svg: &mut String, right: f64, label: &str) {
        let steps = (self.top / self.step).round() as usize;
        for value in (0..=steps).map(|n| n as f64 * self.step) {
            let y = self.at(value);
            let _ = write!(svg, r#"<line class="grid" x1="{LEFT}" x2="{right:.1}" y1="{y:.1}" y2="{y:.1}"/>"#);
            text(svg, "end", LEFT - 8.0, y + 4.0, &plain(value));
        }
        text(svg, "start", 8.0, 14.0, label);
    }
}

/// An axis figure, without trailing zeros.
fn plain(value: f64) -> String {
    let digits = significant(value);
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.').to_owned() } else { digits }
}

impl LineChart<'_> {
    /// The chart; `None` where no line has a point.
    pub fn render(&self, title: &str) -> Option<String> {
        let xs = self.distinct_x();
        let (first, last) = (*xs.first()?, *xs.last()?);
        let longest = self.lines.iter().map(|line| line.label.chars().count()).max().unwrap_or(0);
        let right = WIDTH - (36.0 + LETTER * longest as f64).clamp(80.0, 280.0);
        let x_at = |x: f64| {
            let share = if last > first { (x / first).ln() / (last / first).ln() } else { 0.5 };
            LEFT + 24.0 + (right - LEFT - 40.0) * share
        };
        let vertical = Vertical::reaching(self.lines.iter().flat_map(|line| line.points.iter().map(|p| p.1)));
        let labels_end = self.labels_end();
        let mut svg = opening(title, HEIGHT.max(labels_end + LABEL));
        vertical.draw(&mut svg, right, self.y_label);
        self.draw_x(&mut svg, &xs, x_at, right);
        for (line, class) in self.lines.iter().zip(self.classes()) {
            svg.push_str(&family_group(&line.family));
            line.draw(&mut svg, &class, x_at, &vertical);
            svg.push_str("</g>");
        }
        self.draw_labels(&mut svg, (right, labels_end), x_at, &vertical);
        svg.push_str("</svg>");
        Some(svg)
    }

    fn distinct_x(&self) -> Vec<f64> {
        let mut xs: Vec<f64> = self.lines.iter().flat_map(|line| line.points.iter().map(|p| p.0)).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        xs
    }

    /// The class of each line: its colour by place among ours, or the kernel's, or that of the line it belongs to.
    fn classes(&self) -> Vec<String> {
        let mut next = 0;
        let mut classes: Vec<String> = Vec::with_capacity(self.lines.len());
        for line in &self.lines {
            let of = line.elsewhere_of.and_then(|place| classes.get(place)).map(|class| format!("{class} paper"));
            classes.push(match of {
                Some(class) => class,
                None if line.is_kernel => "kernel".to_owned(),
                None => {
                    next += 1;
                    let place = next - 1;
                    format!("s{}{}", place % COLOURS, if place < COLOURS { "" } else { " again" })
                }
            });
        }
        classes
    }

    /// A tick at every measured x; figures that would touch the one before are omitted.
    fn draw_x(&self, svg: &mut String, xs: &[f64], x_at: impl Fn(f64) -> f64, right: f64) {
        let mut free = f64::NEG_INFINITY;
        for &value in xs {
            let x = x_at(value);
            let _ = write!(svg, r#"<line class="axis" x1="{x:.1}" x2="{x:.1}" y1="{BOTTOM}" y2="{}"/>"#, BOTTOM + 5.0);
            let label = plain(value);
            let half = 3.8 * label.len() as f64;
            if x - half > free {
                text(svg, "middle", x, BOTTOM + 20.0, &label);
                free = x + half + 6.0;
            }
        }
        let _ = write!(svg, r#"<line class="axis" x1="{LEFT}" x2="{right:.1}" y1="{BOTTOM}" y2="{BOTTOM}"/>"#);
        text(svg, "middle", f64::midpoint(LEFT, right), BOTTOM + 42.0, self.x_label);
    }

    /// The lowest place of a label. More labels than fit beside the chart go on below it.
    fn labels_end(&self) -> f64 {
        let labels = self.lines.iter().filter(|line| line.elsewhere_of.is_none() && !line.points.is_empty()).count();
        BOTTOM.max(TOP + 4.0 + LABEL * labels.saturating_sub(1) as f64)
    }

    /// Names beside the last points, moved apart where they would overlap.
    fn draw_labels(&self, svg: &mut String, (right, end): (f64, f64), x_at: impl Fn(f64) -> f64, vertical: &Vertical) {
        let lines = self.lines.iter().zip(self.classes()).filter(|(line, _)| line.elsewhere_of.is_none());
        let mut ends: Vec<(f64, f64, &Line, String)> = lines
            .filter_map(|(line, class)| {
                let (x, (y, _)) = line.points.last()?;
                Some((vertical.at(*y), x_at(*x), line, class))
            })
            .collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        let wanted: Vec<f64> = ends.iter().map(|end| end.0).collect();
        for ((from, x, line, class), y) in ends.into_iter().zip(apart(&wanted, LABEL, TOP + 4.0, end)) {
            svg.push_str(&family_group(&line.family));
            let _ = write!(
                svg,
                r#"<line class="{class} leader" x1="{:.1}" y1="{from:.1}" x2="{:.1}" y2="{y:.1}"/>"#,
                x + 6.0,
                right + 8.0
            );
            text(svg, &format!("start {class}"), right + 12.0, y + 4.0, &line.label);
            svg.push_str("</g>");
        }
    }
}

/// Moves ascending positions down until neighbours are `gap` apart, then up where they left `bottom`.
fn apart(wanted: &[f64], gap: f64, top: f64, bottom: f64) -> Vec<f64> {
    let mut placed: Vec<f64> = Vec::with_capacity(wanted.len());
    for &y in wanted {
        placed.push(placed.last().map_or(top, |last| last + gap).max(y));
    }
    let mut limit = bottom;
    for y in placed.iter_mut().rev() {
        *y = y.min(limit);
        limit = *y - gap;
    }
    placed
}

impl Line {
    fn draw(&self, svg: &mut String, class: &str, x_at: impl Fn(f64) -> f64, vertical: &Vertical) {
        let path: Vec<String> =
            self.points.iter().map(|(x, (y, _))| format!("{:.1},{:.1}", x_at(*x), vertical.at(*y))).collect();
        let _ = write!(svg, r#"<polyline class="{class} line" points="{}"/>"#, path.join(" "));
        for (x, (y, ci)) in &self.points {
            let (cx, cy) = (x_at(*x), vertical.at(*y));
            error_bar(svg, class, cx, *y, *ci, vertical);
            let hint = hint(&format!("{}, {}", self.label, plain(*x)), *y, *ci);
            let _ = write!(svg, r#"<g class="{class} dot">{}{hint}</g>"#, marker(class, cx, cy));
        }
    }
}

/// A shape for a class, so that lines also differ on paper without colour.
fn marker(class: &str, x: f64, y: f64) -> String {
    let colour = class.split(' ').next().unwrap_or_default();
    let place = colour.strip_prefix('s').and_then(|digits| digits.parse::<usize>().ok());
    match place.map(|place| place % 4) {
        Some(0) => format!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="4"/>"#),
        Some(1) => format!(r#"<rect x="{:.1}" y="{:.1}" width="7.5" height="7.5"/>"#, x - 3.75, y - 3.75),
        Some(2) => format!(r#"<path d="M{x:.1} {:.1}l5 8.5h-10z"/>"#, y - 5.0),
        Some(_) => format!(r#"<path d="M{x:.1} {:.1}l5 5-5 5-5-5z"/>"#, y - 5.0),
        None => format!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="2.5"/>"#),
    }
}

impl BarChart<'_> {
    /// The chart; `None` where nothing was measured.
    pub fn render(&self, title: &str) -> Option<String> {
        let values: Vec<Value> = self.categories.iter().flat_map(|c| c.1.iter().copied().flatten()).collect();
        if values.is_empty() {
            return None;
        }
        let vertical = Vertical::reaching(values.into_iter());
        let right = WIDTH - 12.0;
        let room = (right - LEFT) / self.categories.len() as f64;
        let names = CategoryNames::in_room(room, self.categories.iter().map(|(name, _)| name.as_str()));
        let mut svg = opening(title, names.height());
        vertical.draw(&mut svg, right, self.y_label);
        self.draw_key(&mut svg, right);
        for (index, (name, values)) in self.categories.iter().enumerate() {
            let left = LEFT + room * index as f64;
            self.draw_group(&mut svg, (left, room), name, values, &vertical);
            names.draw(&mut svg, left + room / 2.0, name);
        }
        let _ = write!(svg, r#"<line class="axis" x1="{LEFT}" x2="{right:.1}" y1="{BOTTOM}" y2="{BOTTOM}"/>"#);
        svg.push_str("</svg>");
        Some(svg)
    }

    fn draw_group(&self, svg: &mut String, (left, room): (f64, f64), name: &str, bars: &[Option<Value>], v: &Vertical) {
        let width = (room * 0.8 / bars.len().max(1) as f64).min(48.0);
        let start = left + (room - width * bars.len() as f64) / 2.0;
        for (place, bar) in bars.iter().enumerate() {
            let Some((y, ci)) = bar else { continue };
            let (x, class) = (start + width * place as f64, format!("s{}", place % COLOURS));
            let top = v.at(*y);
            let hint = hint(&format!("{name}, {}", self.series[place]), *y, *ci);
            let _ = write!(
                svg,
                r#"<rect class="{class} bar" x="{x:.1}" y="{top:.1}" width="{:.1}" height="{:.1}">{hint}</rect>"#,
                (width - 2.0).max(1.0),
                (BOTTOM - top).max(0.0)
            );
            error_bar(svg, "over", x + width / 2.0 - 1.0, *y, *ci, v);
        }
    }

    fn draw_key(&self, svg: &mut String, right: f64) {
        let mut x = right;
        for (place, name) in self.series.iter().enumerate().rev() {
            x -= 7.0 * name.chars().count() as f64;
            text(svg, "start", x, 14.0, name);
            x -= 16.0;
            let _ = write!(svg, r#"<rect class="s{} bar" x="{x:.1}" y="5" width="11" height="11"/>"#, place % COLOURS);
            x -= 14.0;
        }
    }
}

/// The names below the bars. Over several lines ("connp-l, 128 groups, ticket") where each part fits its category; else at
/// an angle, so that none touches its neighbour.
enum CategoryNames {
    Level,
    /// The number of letters of the longest name.
    Sloping(usize),
}

impl CategoryNames {
    fn in_room<'a>(room: f64, names: impl Iterator<Item = &'a str> + Clone) -> CategoryNames {
        let letters = |part: &str| part.chars().count();
        let widest = names.clone().flat_map(|name| parts(name).map(letters)).max().unwrap_or(0);
        if LETTER * widest as f64 <= room {
            CategoryNames::Level
        } else {
            CategoryNames::Sloping(names.map(letters).max().unwrap_or(0))
        }
    }

    fn height(&self) -> f64 {
        match self {
            CategoryNames::Level => HEIGHT,
            CategoryNames::Sloping(letters) => HEIGHT.max(BOTTOM + 24.0 + SLOPE * *letters as f64),
        }
    }

    fn draw(&self, svg: &mut String, middle: f64, name: &str) {
        match self {
            CategoryNames::Level => {
                for (line, part) in parts(name).enumerate() {
                    text(svg, "middle", middle, BOTTOM + 18.0 + 14.0 * line as f64, part);
                }
            }
            CategoryNames::Sloping(_) => {
                let (x, y) = (middle + 4.0, BOTTOM + 16.0);
                let name = escaped(name);
                let _ = write!(
                    svg,
                    r#"<text class="end" x="{x:.1}" y="{y:.1}" transform="rotate(-40 {x:.1} {y:.1})">{name}</text>"#
                );
            }
        }
    }
}

/// The lines of a name that is broken where it may be.
fn parts(name: &str) -> impl Iterator<Item = &str> {
    name.split(", ").flat_map(broken)
}

/// Opens the group of the marks of a family.
fn family_group(family: &str) -> String {
    match family {
        "" => "<g>".to_owned(),
        family => format!(r#"<g data-family="{}">"#, escaped(family)),
    }
}

impl StackedChart<'_> {
    /// The chart; `None` where there is no bar.
    pub(super) fn render(&self, title: &str) -> Option<String> {
        let sums = self.categories.iter().map(|(_, values)| (values.iter().sum(), None));
        let vertical = Vertical::reaching(sums);
        let right = WIDTH - 12.0;
        let mut svg = opening(title, HEIGHT);
        vertical.draw(&mut svg, right, self.y_label);
        let series = self.series.iter().map(|name| (*name).to_owned()).collect();
        BarChart { y_label: self.y_label, series, categories: Vec::new() }.draw_key(&mut svg, right);
        let room = (right - LEFT) / self.categories.len().max(1) as f64;
        for (index, (name, values)) in self.categories.iter().enumerate() {
            self.draw_bar(&mut svg, (LEFT + room * index as f64, room), name, values, &vertical);
        }
        let _ = write!(svg, r#"<line class="axis" x1="{LEFT}" x2="{right:.1}" y1="{BOTTOM}" y2="{BOTTOM}"/>"#);
        svg.push_str("</svg>");
        (!self.categories.is_empty()).then_some(svg)
    }

    fn draw_bar(&self, svg: &mut String, (left, room): (f64, f64), name: &str, values: &[f64], vertical: &Vertical) {
        let (width, mut below) = ((room * 0.7).min(64.0), 0.0);
        for (place, value) in values.iter().enumerate() {
            let (bottom, top) = (vertical.at(below), vertical.at(below + value));
            let hint = hint(&format!("{name}, {}", self.series[place]), *value, None);
            let _ = write!(
                svg,
                r#"<rect class="s{} bar" x="{:.1}" y="{top:.1}" width="{width:.1}" height="{:.1}">{hint}</rect>"#,
                place % COLOURS,
                left + (room - width) / 2.0,
                (bottom - top).max(0.0)
            );
            below += value;
        }
        // Names may be as long as in a table, so if there are many bars, columns are numbered instead.
        let label = |part: &str, line: usize, svg: &mut String| {
            text(svg, "middle", left + room / 2.0, BOTTOM + 18.0 + 14.0 * line as f64, part);
        };
        let fitting = parts(name).filter(|part| LETTER * part.chars().count() as f64 <= room);
        fitting.take(3).enumerate().for_each(|(line, part)| label(part, line, svg));
    }
}

fn opening(title: &str, height: f64) -> String {
    format!(
        r#"<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{}" xmlns="http://www.w3.org/2000/svg">"#,
        escaped(title)
    )
}

fn error_bar(svg: &mut String, class: &str, x: f64, y: f64, ci: Option<f64>, vertical: &Vertical) {
    let Some(ci) = ci.filter(|ci| ci.is_finite() && *ci > 0.0) else { return };
    let (high, low) = (vertical.at(y + ci), vertical.at(y - ci));
    let _ = write!(
        svg,
        r#"<path class="{class} error" d="M{x:.1} {high:.1}V{low:.1}M{:.1} {high:.1}h8M{:.1} {low:.1}h8"/>"#,
        x - 4.0,
        x - 4.0
    );
}

/// The tooltip of a mark.
fn hint(name: &str, y: f64, ci: Option<f64>) -> String {
    let interval = ci.map(|ci| format!(" ± {}", significant(ci))).unwrap_or_default();
    format!("<title>{}: {}{interval}</title>", escaped(name), significant(y))
}

fn text(svg: &mut String, class: &str, x: f64, y: f64, content: &str) {
    let _ = write!(svg, r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{}</text>"#, escaped(content));
}

fn escaped(content: &str) -> String {
    content.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A long name, "msgp:1+coupled", in two parts.
fn broken(name: &str) -> Vec<&str> {
    match name.rfind([':', '+']) {
        Some(at) if name.len() > 12 => vec![&name[..=at], &name[at + 1..]],
        _ => vec![name],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_broken_where_they_may_be() {
        assert_eq!(broken("msgp:1+coupled"), ["msgp:1+", "coupled"]);
        assert_eq!(broken("connp-t:spsc"), ["connp-t:spsc"]);
        assert_eq!(broken("128 groups of them"), ["128 groups of them"]);
    }

    #[test]
    fn the_axis_is_round_and_holds_every_error_bar() {
        for (value, ci, top, step) in [(47.0, Some(2.0), 50.0, 10.0), (0.31, None, 0.4, 0.1), (0.0, None, 1.0, 0.2)] {
            let vertical = Vertical::reaching([(value, ci)].into_iter());
            assert!((vertical.top - top).abs() < 1e-9 && (vertical.step - step).abs() < 1e-9, "{value}");
        }
        let vertical = Vertical { top: 50.0, step: 10.0 };
        assert_eq!((vertical.at(0.0), vertical.at(50.0), vertical.at(-9.0)), (BOTTOM, TOP, BOTTOM));
    }

    #[test]
    fn labels_keep_their_distance_and_stay_inside() {
        assert_eq!(apart(&[10.0, 12.0, 80.0], 16.0, 0.0, 100.0), [10.0, 26.0, 80.0]);
        assert_eq!(apart(&[95.0, 96.0, 97.0], 16.0, 0.0, 100.0), [68.0, 84.0, 100.0]);
        assert_eq!(apart(&[], 16.0, 0.0, 100.0), Vec::<f64>::new());
    }

    /// As in a report of every architecture.
    #[test]
    fn all_labels_of_many_lines_are_inside_the_figure() {
        for count in [1, 19, 20, 31, 60] {
            let line = |n: usize| Line {
                label: format!("line {n}"),
                family: n.to_string(),
                is_kernel: false,
                elsewhere_of: None,
                points: vec![(6.0, (50.0 + n as f64 / 10.0, None))],
            };
            let chart = LineChart { x_label: "", y_label: "", lines: (0..count).map(line).collect() };
            let svg = chart.render("t").expect("lines");
            let after = |text: &str, mark: &str| text.split_once(mark).map(|(_, rest)| rest.to_owned());
            let number = |text: String| text.split(['"', ' ']).next().and_then(|n| n.parse::<f64>().ok());
            let height = after(&svg, "viewBox=\"0 0 860 ").and_then(number).expect("a height");
            let texts = svg.split("<text").filter_map(|rest| rest.split("</text>").next());
            let labels = texts.filter(|text| text.contains(">line "));
            let mut places: Vec<f64> =
                labels.map(|text| after(text, " y=\"").and_then(number).expect("a place")).collect();
            places.sort_by(f64::total_cmp);
            assert_eq!(places.len(), count);
            assert!(
                places[0] >= TOP && *places.last().expect("a label") <= height - 4.0,
                "{count}: {places:?} of {height}"
            );
            assert!(places.windows(2).all(|two| two[1] - two[0] > LABEL - 0.2), "{count}: {places:?}");
        }
    }

    #[test]
    fn names_are_escaped_and_nothing_draws_nothing() {
        let line = Line {
            label: "<up> & \"co\"".into(),
            family: "<up>".into(),
            is_kernel: false,
            elsewhere_of: None,
            points: vec![(6.0, (3.0, Some(0.5)))],
        };
        let chart = LineChart { x_label: "connections", y_label: "Gb/s", lines: vec![line] };
        let svg = chart.render("a & b").unwrap();
        assert!(svg.contains("&lt;up&gt; &amp; &quot;co&quot;") && !svg.contains("<up>"));
        assert!(svg.contains("error") && !svg.contains("NaN"));
        assert!(LineChart { x_label: "", y_label: "", lines: Vec::new() }.render("t").is_none());
        let empty = BarChart { y_label: "", series: vec!["a".into()], categories: vec![("x".into(), vec![None])] };
        assert!(empty.render("t").is_none());
    }

    #[test]
    fn names_of_bars_slope_where_they_would_touch() {
        let bars = |names: &[&str]| {
            let categories = names.iter().map(|name| ((*name).to_owned(), vec![Some((1.0, None))])).collect();
            BarChart { y_label: "", series: vec!["6 connections".into()], categories }.render("t").expect("bars")
        };
        let few = bars(&["connp-l, 128 groups, ticket", "up"]);
        assert!(few.contains(">128 groups<") && !few.contains("rotate("), "{few}");
        let many = bars(&["shared-nothing, and <more>"; 12]);
        assert_eq!(many.matches("rotate(").count(), 12);
        assert!(many.contains("shared-nothing, and &lt;more&gt;"));
        assert!(many.contains(&format!("0 0 {WIDTH} {}", BOTTOM + 24.0 + SLOPE * 26.0)), "there is room below: {many}");
    }

    #[test]
    fn lines_beyond_the_colours_differ_from_the_first() {
        let line = |n: usize| Line {
            label: n.to_string(),
            family: format!("family {}", n % 2),
            is_kernel: false,
            elsewhere_of: None,
            points: vec![(6.0, (1.0, None))],
        };
        let chart = LineChart { x_label: "", y_label: "", lines: (0..=COLOURS).map(line).collect() };
        assert_eq!((chart.classes()[0].as_str(), chart.classes()[COLOURS].as_str()), ("s0", "s0 again"));
        // Each line, and each label.
        let svg = chart.render("t").expect("lines");
        assert_eq!(svg.matches(r#"<g data-family="family 1">"#).count(), 2 * (COLOURS / 2));
    }

    #[test]
    fn the_kernel_takes_no_colour_of_ours() {
        let line = |label: &str, is_kernel, elsewhere_of| Line {
            label: label.into(),
            family: String::new(),
            is_kernel,
            elsewhere_of,
            points: vec![(6.0, (1.0, None))],
        };
        let lines = vec![line("a", false, None), line("linux", true, None), line("b", false, None)];
        assert_eq!(LineChart { x_label: "", y_label: "", lines }.classes(), ["s0", "kernel", "s1"]);
        let lines = vec![line("a", false, None), line("paper", false, Some(0)), line("b", false, None)];
        let chart = LineChart { x_label: "", y_label: "", lines };
        assert_eq!(chart.classes(), ["s0", "s0 paper", "s1"]);
        let svg = chart.render("both").unwrap();
        assert_eq!((svg.matches(r#"class="start s"#).count(), svg.matches(">paper<").count()), (2, 0), "{svg}");
    }
}
