//! Parses the `{:?}` notation of the core's types.

/// A value in `{:?}` notation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DebugValue {
    /// A number, a duration, or a name without fields.
    Word(String),
    Text(String),
    /// `Name { field: value, … }`
    Fields(String, Vec<(String, Self)>),
    /// `Name(value, …)`, or with an empty name `(value, …)` and `[value, …]`.
    Items(String, Vec<Self>),
    /// `{key: value, …}`
    Map(Vec<(Self, Self)>),
}

/// A type that can be parsed from its `{:?}` notation.
pub(crate) trait FromDebug: Sized {
    fn from_debug(value: &DebugValue) -> Result<Self, String>;
}

impl DebugValue {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { rest: text };
        let value = parser.value()?;
        if parser.rest.is_empty() { Ok(value) } else { Err(parser.unexpected()) }
    }

    /// Returns the name of a struct or a variant.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Word(name) | Self::Fields(name, _) | Self::Items(name, _) => name,
            Self::Text(_) | Self::Map(_) => "",
        }
    }

    pub(crate) fn get(&self, field: &str) -> Result<&Self, String> {
        let Self::Fields(name, fields) = self else {
            return Err(format!("{} has no fields", self.name()));
        };
        let found = fields.iter().find(|(name, _)| name == field);
        found.map(|(_, value)| value).ok_or_else(|| format!("{name} has no field {field}"))
    }

    pub(crate) fn field<T: FromDebug>(&self, field: &str) -> Result<T, String> {
        T::from_debug(self.get(field)?).map_err(|why| format!("{field}: {why}"))
    }

    pub(crate) fn items(&self) -> Result<&[Self], String> {
        match self {
            Self::Items(_, items) => Ok(items),
            _ => Err(format!("{} has no items", self.name())),
        }
    }

    /// Reads an item of a tuple or of a list.
    pub(crate) fn item<T: FromDebug>(&self, index: usize) -> Result<T, String> {
        let item = self.items()?.get(index);
        T::from_debug(item.ok_or_else(|| format!("{} has too few items", self.name()))?)
    }
}

struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    fn value(&mut self) -> Result<DebugValue, String> {
        if self.skip("\"") {
            return self.text().map(DebugValue::Text);
        }
        if self.skip("[") {
            return Ok(DebugValue::Items(String::new(), self.list("]", Self::value)?));
        }
        if self.skip("{") {
            let entry = |parser: &mut Self| {
                let key = parser.value()?;
                parser.expect(": ")?;
                Ok((key, parser.value()?))
            };
            return Ok(DebugValue::Map(self.list("}", entry)?));
        }
        let word = self.word().to_owned();
        if self.skip("(") {
            return Ok(DebugValue::Items(word, self.list(")", Self::value)?));
        }
        if word.is_empty() {
            return Err(self.unexpected());
        }
        if self.skip(" { ") {
            let field = |parser: &mut Self| {
                let name = parser.word().to_owned();
                parser.expect(": ")?;
                Ok((name, parser.value()?))
            };
            return Ok(DebugValue::Fields(word, self.list(" }", field)?));
        }
        Ok(DebugValue::Word(word))
    }

    /// Reads a list separated by commas, up to and including `end`.
    fn list<T>(
        &mut self,
        end: &str,
        one: impl Fn(&mut Self) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let mut list = vec![];
        while !self.skip(end) {
            if !list.is_empty() {
                self.expect(", ")?;
            }
            list.push(one(self)?);
        }
        Ok(list)
    }

    /// Reads the rest of a string, with its closing quotation mark.
    fn text(&mut self) -> Result<String, String> {
        let mut text = String::new();
        let mut chars = self.rest.chars();
        while let Some(next) = chars.next() {
            match next {
                '"' => {
                    self.rest = chars.as_str();
                    return Ok(text);
                }
                '\\' => match chars.next() {
                    Some('n') => text.push('\n'),
                    Some('r') => text.push('\r'),
                    Some('t') => text.push('\t'),
                    Some('0') => text.push('\0'),
                    Some('u') => {
                        let (digits, rest) =
                            chars.as_str().split_once('}').ok_or("a character without an end")?;
                        let digits = digits.trim_start_matches('{');
                        let number = u32::from_str_radix(digits, 16).ok();
                        let character = number.and_then(char::from_u32);
                        text.push(character.ok_or_else(|| format!("\\u{{{digits}}}"))?);
                        chars = rest.chars();
                    }
                    Some(escaped) => text.push(escaped),
                    None => break,
                },
                other => text.push(other),
            }
        }
        Err("a string without an end".to_owned())
    }

    fn word(&mut self) -> &str {
        let is_outside = |c: char| !(c.is_alphanumeric() || "_-.µ".contains(c));
        let end = self.rest.find(is_outside).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn skip(&mut self, expected: &str) -> bool {
        let rest = self.rest.strip_prefix(expected);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, expected: &str) -> Result<(), String> {
        if self.skip(expected) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn unexpected(&self) -> String {
        let rest: String = self.rest.chars().take(40).collect();
        format!("unexpected {rest:?}")
    }
}
