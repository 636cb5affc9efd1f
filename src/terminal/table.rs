//! Tables with aligned columns, whatever characters the cells contain.

use super::text::visible;
use anstyle::Style;
use std::fmt::Write;
use unicode_width::UnicodeWidthStr;

/// The number of spaces between two columns.
const GAP: usize = 2;

/// The text of a table's cell, and its style.
pub(super) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// Creates a cell. An empty text becomes a dash, so that a script that splits a line at spaces finds the same
    /// number of columns in each line.
    pub(super) fn new(text: &str) -> Self {
        let text = if text.is_empty() { "-".into() } else { visible(text) };
        Self { text, style: Style::new() }
    }

    /// Creates a cell with a text that may be missing.
    pub(super) fn of(text: Option<&str>) -> Self {
        Self::new(text.unwrap_or_default())
    }

    pub(super) fn style(self, style: Style) -> Self {
        Self { style, ..self }
    }

    /// Returns the width at a terminal, where some characters take two columns.
    fn width(&self) -> usize {
        self.text.width()
    }
}

/// Renders a heading and rows. Only the columns that have a heading are shown.
pub(super) fn table(heading: &[&str], rows: impl IntoIterator<Item = Vec<Cell>>) -> String {
    let columns = heading.len();
    let heading = heading.iter().map(|word| Cell::new(word).style(Style::new().bold())).collect();
    aligned(columns, std::iter::once(heading).chain(rows).collect())
}

/// Renders names and values, one pair per line.
pub(super) fn pairs<'a>(rows: impl IntoIterator<Item = (&'a str, Cell)>) -> String {
    let rows = rows.into_iter();
    aligned(
        2,
        rows.map(|(name, cell)| vec![Cell::new(name).style(Style::new().bold()), cell]).collect(),
    )
}

/// Makes each column as wide as its widest cell.
fn aligned(columns: usize, rows: Vec<Vec<Cell>>) -> String {
    let width =
        |column: usize| rows.iter().map(|row| row[column].width()).max().unwrap_or_default();
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        for (column, cell) in row.iter().take(columns).enumerate() {
            let Cell { text: plain, style } = cell;
            write!(text, "{style}{plain}{style:#}").expect("writing to a string cannot fail");
            if column + 1 < columns {
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
            vec![Cell::new("選挙"), Cell::new("a").style(green), Cell::new("end")],
            vec![Cell::new("Zürich"), Cell::new("\u{1b}[2J"), Cell::new("")],
        ];
        let text = table(&["PLACE", "ID", "LAST"], rows);
        let plain = strip_str(&text).to_string();
        let expected = "PLACE   ID         LAST\n\
                        選挙    a          end\n\
                        Zürich  \\u{1b}[2J  -\n";
        assert_eq!(plain, expected);
        assert!(text.contains("\u{1b}[32ma\u{1b}[0m"), "{text:?}");
    }
}
