//! Makes text safe to print that others wrote, such as a member's labels, so that nothing in it can control the
//! terminal.

use std::fmt::Write;

/// Escapes every character that could move the cursor, change colours or reverse the writing direction, and every
/// invisible character.
pub(super) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // `escape_debug` would escape quotes, which are harmless.
            '"' | '\'' => shown.push(c),
            c => shown.extend(c.escape_debug()),
        }
    }
    shown
}

/// Returns equivalent JSON with escapes for characters that JSON allows in strings but that could control a terminal.
pub(super) fn harmless_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        // ASCII is safe except for DEL: valid JSON has no other unescaped control characters than tabs and line ends.
        // Of the other characters, `escape_debug` leaves the harmless ones as they are.
        if c.is_ascii() && c != '\u{7f}' || c.escape_debug().len() == 1 {
            shown.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(shown, "\\u{unit:04x}").expect("writing to a string cannot fail");
            }
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "\u{1b}[31mred\u{7}\r\n\t\u{9b}2J\u{202e}gnp\u{7f}\u{0}";

    #[test]
    fn nothing_that_others_wrote_controls_the_terminal() {
        assert_eq!(
            visible(HOSTILE),
            "\\u{1b}[31mred\\u{7}\\r\\n\\t\\u{9b}2J\\u{202e}gnp\\u{7f}\\0"
        );
        assert_eq!(visible("a\\b"), "a\\\\b", "a backslash differs from an escape");
        assert_eq!(visible("it's \"Zürich\", 選挙"), "it's \"Zürich\", 選挙");
    }

    #[test]
    fn harmless_json_has_the_same_value() {
        let value = serde_json::json!({"label": format!("{HOSTILE}ü選🐑\u{e0041}")});
        let shown = harmless_json(&value.to_string());
        assert!(!shown.chars().any(char::is_control), "{shown}");
        assert!(!shown.contains('\u{202e}') && shown.contains("ü選🐑"), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
