//! What was measured, as people read it: medians, tails, ratios, and pictures.

use std::{fmt::Write as _, time::Duration};

/// Times of the same thing, measured again and again.
#[derive(Clone, Default)]
pub(crate) struct Times(Vec<Duration>);

impl Times {
    pub(crate) fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn median_ms(&self) -> f64 {
        self.at(0.5)
    }

    pub(crate) fn p99_ms(&self) -> f64 {
        self.at(0.99)
    }

    /// The smallest that so large a part of them does not exceed.
    fn at(&self, part: f64) -> f64 {
        let mut all = self.0.clone();
        all.sort_unstable();
        let nth = (all.len() as f64 * part).ceil() as usize;
        all[nth.clamp(1, all.len()) - 1].as_secs_f64() * 1e3
    }
}

impl Extend<Duration> for Times {
    fn extend<I: IntoIterator<Item = Duration>>(&mut self, times: I) {
        self.0.extend(times);
    }
}

impl FromIterator<Duration> for Times {
    fn from_iter<I: IntoIterator<Item = Duration>>(times: I) -> Self {
        Self(times.into_iter().collect())
    }
}

/// A part of the report.
#[derive(Default)]
pub(crate) struct Section {
    text: String,
}

impl Section {
    pub(crate) fn new(title: &str, how: &str) -> Self {
        Self { text: format!("## {title}\n\n{how}\n") }
    }

    pub(crate) fn say(&mut self, text: &str) {
        writeln!(self.text, "\n{text}").expect("a String takes all");
    }

    /// All columns but the first hold numbers.
    pub(crate) fn table(&mut self, columns: &[&str], rows: &[Vec<String>]) {
        let line = |cells: &[&str]| format!("| {} |\n", cells.join(" | "));
        let rules: Vec<&str> =
            (0..columns.len()).map(|n| if n == 0 { "---" } else { "---:" }).collect();
        self.text += "\n";
        self.text += &line(columns);
        self.text += &line(&rules);
        for row in rows {
            let cells: Vec<&str> = row.iter().map(String::as_str).collect();
            self.text += &line(&cells);
        }
    }

    /// Says whether a goal was met, and by what.
    pub(crate) fn goal(&mut self, goal: &str, measured: f64, bound: Bound) {
        let met = match bound {
            Bound::AtMost(most) => measured <= most,
            Bound::AtLeast(least) => measured >= least,
        };
        let verdict = if met { "met" } else { "**missed**" };
        writeln!(self.text, "\nGoal: {goal}. Measured: {measured:.2}, {verdict}.")
            .expect("a String takes all");
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

pub(crate) fn ms(value: f64) -> String {
    if value < 10.0 { format!("{value:.2} ms") } else { format!("{value:.1} ms") }
}

pub(crate) fn ratio(value: f64) -> String {
    format!("{value:.2}")
}

/// A picture of some curves: scalable, and readable on light and dark ground.
pub(crate) struct Plot<'a> {
    pub(crate) title: &'a str,
    pub(crate) across: &'a str,
    pub(crate) up: &'a str,
    pub(crate) curves: Vec<(&'a str, Vec<(f64, f64)>)>,
}

const COLOURS: [&str; 4] = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd"];
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;

impl Plot<'_> {
    pub(crate) fn svg(&self) -> String {
        let points = || self.curves.iter().flat_map(|(_, points)| points);
        let most_across = round_up(points().map(|(x, _)| *x).fold(0.0, f64::max));
        let most_up = round_up(points().map(|(_, y)| *y).fold(0.0, f64::max));
        let x = |value: f64| LEFT + value / most_across * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - value / most_up * (HEIGHT - TOP - BOTTOM);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
             <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{}</text>\n",
            self.title
        );
        for step in 0..=5 {
            let part = f64::from(step) / 5.0;
            let (across, up) = (most_across * part, most_up * part);
            let (at_x, at_y) = (x(across), y(up));
            let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
            writeln!(
                svg,
                "<path d=\"M{LEFT} {at_y:.1}H{right}\" stroke=\"#ddd\"/>\n\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n\
                 <text x=\"{at_x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                LEFT - 6.0,
                at_y + 4.0,
                short(up),
                bottom + 16.0,
                short(across),
            )
            .expect("a String takes all");
        }
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        writeln!(
            svg,
            "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(16 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            HEIGHT - 12.0,
            self.across,
            HEIGHT / 2.0,
            self.up
        )
        .expect("a String takes all");
        for (nth, (name, points)) in self.curves.iter().enumerate() {
            let colour = COLOURS[nth % COLOURS.len()];
            let path: Vec<String> = points
                .iter()
                .map(|(across, up)| format!("{:.1},{:.1}", x(*across), y(*up)))
                .collect();
            writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
                 <text x=\"{}\" y=\"{}\" fill=\"{colour}\">{name}</text>",
                path.join(" "),
                LEFT + 12.0,
                TOP + 14.0 + 16.0 * nth as f64,
            )
            .expect("a String takes all");
        }
        svg + "</svg>\n"
    }
}

/// To one, two or five times a power of ten.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(1e-9).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|times| times * power)
        .into_iter()
        .find(|&up| up >= value)
        .unwrap_or(value)
}

fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.1}M", value / 1e6),
        value if value >= 1e4 => format!("{:.0}k", value / 1e3),
        value if value >= 10.0 || value == 0.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}
