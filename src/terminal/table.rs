//! Tables with aligned columns, whatever the cells hold.

use super::text::visible;
use anstyle::Style;
use std::fmt::Write;
use unicode_width::UnicodeWidthStr;

const GAP: usize = 2;

/// One field: plain text, and how it looks.
pub(super) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// Nothing is a dash, so that a script that splits at spaces counts right.
    pub(super) fn new(text: &str) -> Self {
        let text = if text.is_empty() { "-".into() } else { visible(text) };
        Self { text, style: Style::new() }
    }

    pub(super) fn of(text: Option<&str>) -> Self {
        Self::new(text.unwrap_or_default())
    }

    pub(super) fn style(self, style: Style) -> Self {
        Self { style, ..self }
    }

    fn width(&self) -> usize {
        self.text.width()
    }
}

/// A heading, and the rows below it.
pub(super) fn table<const N: usize>(heading: [&str; N], rows: Vec<[Cell; N]>) -> String {
    let heading = heading.map(|word| Cell::new(word).style(Style::new().bold()));
    let rows: Vec<_> = std::iter::once(heading).chain(rows).collect();
    aligned(&rows)
}

/// Names and what they stand for, one pair a line.
pub(super) fn pairs(rows: Vec<(&str, Cell)>) -> String {
    let rows: Vec<_> = rows
        .into_iter()
        .map(|(name, cell)| [Cell::new(name).style(Style::new().bold()), cell])
        .collect();
    aligned(&rows)
}

fn aligned<const N: usize>(rows: &[[Cell; N]]) -> String {
    let widths: [usize; N] = std::array::from_fn(|column| {
        rows.iter().map(|row| row[column].width()).max().unwrap_or_default()
    });
    let mut text = String::new();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            let Cell { text: plain, style } = cell;
            write!(text, "{style}{plain}{style:#}").expect("a string takes all");
            if column + 1 < N {
                text += &" ".repeat(widths[column] - cell.width() + GAP);
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use anstream::adapter::strip_str;

    #[test]
    fn columns_stand_under_each_other_by_what_is_seen() {
        let green = Style::new().fg_color(Some(anstyle::AnsiColor::Green.into()));
        let rows = vec![
            [Cell::new("選挙"), Cell::new("a").style(green), Cell::new("end")],
            [Cell::new("Zürich"), Cell::new("\u{1b}[2J"), Cell::new("")],
        ];
        let text = table(["PLACE", "ID", "LAST"], rows);
        let plain = strip_str(&text).to_string();
        let expected = "PLACE   ID         LAST\n\
                        選挙    a          end\n\
                        Zürich  \\u{1b}[2J  -\n";
        assert_eq!(plain, expected);
        assert!(text.contains("\u{1b}[32ma\u{1b}[0m"), "{text:?}");
    }
}
