//! The texts inside frames, by their rules (R-MM-9, R-MM-11, R-MM-12, R-MM-28 to R-MM-30, R-MM-V9, R-MM-V10).

use super::super::filters::Condition;
use crate::text::{Number, Property};

pub(super) type Pairs = Vec<(String, String)>;
/// Extensions with their properties.
pub(super) type List = Vec<(String, Pairs)>;

const ESCAPE: &str = "invalid_percent_encoding";
const LIST: &str = "invalid_extension_list";
const COMMAND: &str = "invalid_command";
const FILTER: &str = "invalid_filter";

/// Checks the number of names, each behind a semicolon or a comma.
pub(super) fn check_names(text: &str, most: u64) -> Result<(), &'static str> {
    let count = text.matches([';', ',']).count();
    if u64::try_from(count).is_ok_and(|count| count <= most) {
        return Ok(());
    }
    Err("limit_exceeded")
}

/// The text without its escapes.
fn unescaped(text: &str) -> Result<String, &'static str> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2).ok_or(ESCAPE)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(ESCAPE);
        }
        bytes.extend(u8::from_str_radix(digits, 16));
        bytes.extend(part.bytes().skip(2));
    }
    String::from_utf8(bytes).map_err(|_| ESCAPE)
}

fn name(text: &str, wrong: &'static str) -> Result<String, &'static str> {
    let is_sound = |char| ('!'..='~').contains(&char) && !":;,=".contains(char);
    if text.is_empty() || !text.chars().all(is_sound) {
        return Err(wrong);
    }
    Ok(text.to_owned())
}

/// The parts between semicolons; one semicolon may stand behind the last part.
fn entries(text: &str) -> Vec<&str> {
    if text.is_empty() {
        return Vec::new();
    }
    text.strip_suffix(';').unwrap_or(text).split(';').collect()
}

fn pairs(text: &str, signs: &[char], wrong: &'static str) -> Result<Pairs, &'static str> {
    let mut pairs = Vec::new();
    for pair in text.split(',') {
        let (own, value) = pair.split_once(signs).ok_or(wrong)?;
        pairs.push((name(own, wrong)?, unescaped(value)?));
    }
    Ok(pairs)
}

/// Reads a list of extensions.
pub(super) fn list(text: &str) -> Result<List, &'static str> {
    let mut list = Vec::new();
    for entry in entries(text) {
        let one = match entry.split_once(':') {
            Some((own, properties)) => (name(own, LIST)?, pairs(properties, &['=', ':'], LIST)?),
            None => (name(entry, LIST)?, Vec::new()),
        };
        list.push(one);
    }
    Ok(list)
}

/// Reads a command.
pub(super) fn command(text: &str) -> Result<(String, Pairs), &'static str> {
    match entries(text)[..] {
        [own] => Ok((name(own, COMMAND)?, Vec::new())),
        [own, properties] => Ok((name(own, COMMAND)?, pairs(properties, &['='], COMMAND)?)),
        // The first fault is named.
        [own, properties, ..] => {
            name(own, COMMAND)?;
            pairs(properties, &['='], COMMAND)?;
            Err(COMMAND)
        }
        [] => Err(COMMAND),
    }
}

/// Reads a filter.
pub(super) fn filter(text: &str) -> Result<Vec<Condition>, &'static str> {
    if !text.is_ascii() {
        return Err("not_ascii");
    }
    if text.is_empty() {
        return Err(FILTER);
    }
    entries(text).into_iter().map(condition).collect()
}

fn condition(text: &str) -> Result<Condition, &'static str> {
    let at = text.find(['=', '<', '>', '!', '~', '&']).ok_or(FILTER)?;
    let (own, rest) = text.split_at(at);
    // The longer ones first.
    let operators = ["!=", "<=", ">=", "=", "<", ">", "~", "&"];
    let operator = operators.into_iter().find(|one| rest.starts_with(one));
    let operator = operator.ok_or(FILTER)?;
    let condition = Condition {
        name: name(own, FILTER)?,
        operator,
        value: value(&rest[operator.len()..])?,
    };
    if !condition.is_sound() {
        return Err(FILTER);
    }
    Ok(condition)
}

/// A value with its type in front.
fn value(text: &str) -> Result<Property, &'static str> {
    let Some(letter) = text.chars().next() else {
        return Err(FILTER);
    };
    let rest = &text[1..];
    match letter {
        'T' => unescaped(rest).map(Property::Text),
        'D' => decimal(rest).map(Property::Date).ok_or(FILTER),
        'N' if rest.contains('.') => {
            let number = decimal(rest).ok_or(FILTER)?;
            Ok(Property::Number(Number::Fraction(number)))
        }
        // The standard library also reads a plus.
        'N' if !rest.starts_with('+') => {
            let number = rest.parse().map_err(|_| FILTER)?;
            Ok(Property::Number(Number::Whole(number)))
        }
        _ => Err(FILTER),
    }
}

/// Digits, and perhaps a point with digits behind it.
fn decimal(text: &str) -> Option<f64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (before, behind) = digits.split_once('.').unwrap_or((digits, "0"));
    let are_digits = |part: &str| !part.is_empty() && part.bytes().all(|one| one.is_ascii_digit());
    if !are_digits(before) || !are_digits(behind) {
        return None;
    }
    let number = text.parse::<f64>().ok()?;
    number.is_finite().then_some(number)
}
