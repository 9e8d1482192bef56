//! Changes to a protobuf message by its fields, so that the lengths of the outer messages stay valid.

use crate::Draw;

/// An encoded field.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    tag: u64,
    value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Number(u64),
    Bytes(Vec<u8>),
    /// Four or eight bytes: no decoded message of the API has these.
    Fixed(Vec<u8>),
}

/// The maximum number of changes to one message.
const CHANGES: usize = 4;

/// The same message with a few fields changed, inserted, removed, duplicated or reordered; sometimes it is corrupted as bytes.
#[must_use]
pub fn vary(draw: &mut Draw<'_>, message: &[u8]) -> Vec<u8> {
    if draw.once_in(8) {
        return draw.corrupt(message);
    }
    let mut message = message.to_vec();
    for _ in 0..=draw.below(CHANGES) {
        message = changed(draw, &message);
    }
    message
}

fn changed(draw: &mut Draw<'_>, message: &[u8]) -> Vec<u8> {
    let Some(mut fields) = parse(message).filter(|fields| !fields.is_empty()) else {
        return draw.corrupt(message);
    };
    let at = draw.below(fields.len());
    match draw.below(12) {
        0 => drop(fields.remove(at)),
        1 => fields.extend(fields.get(at).cloned()),
        2 => {
            let field = fields.remove(at);
            fields.insert(draw.below(fields.len() + 1), field);
        }
        3 => fields.insert(at, Field { tag: draw.below(400) as u64, value: random_value(draw) }),
        4 => fields.iter_mut().skip(at).take(1).for_each(|field| field.value = random_value(draw)),
        5 => fields.iter_mut().skip(at).take(1).for_each(|field| field.tag = draw.number().unsigned_abs()),
        _ => fields.iter_mut().skip(at).take(1).for_each(|field| match &mut field.value {
            Value::Bytes(bytes) => *bytes = changed(draw, bytes),
            Value::Number(number) => *number = draw.number().cast_unsigned(),
            Value::Fixed(bytes) => *bytes = draw.corrupt(bytes),
        }),
    }
    write(&fields)
}

fn random_value(draw: &mut Draw<'_>) -> Value {
    match draw.below(4) {
        0 => Value::Number(draw.number().cast_unsigned()),
        1 => Value::Bytes(Vec::new()),
        2 => Value::Bytes(draw.text(&["a", "True"]).into_bytes()),
        _ => Value::Fixed(vec![0; if draw.once_in(2) { 8 } else { 4 }]),
    }
}

/// `None`: the bytes are no message.
fn parse(mut bytes: &[u8]) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = number(&mut bytes)?;
        let mut take = |length: u64| {
            let (taken, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
            bytes = rest;
            Some(taken.to_vec())
        };
        let value = match key & 7 {
            1 => Value::Fixed(take(8)?),
            5 => Value::Fixed(take(4)?),
            2 => {
                let length = number(&mut bytes)?;
                let (taken, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
                bytes = rest;
                Value::Bytes(taken.to_vec())
            }
            0 => Value::Number(number(&mut bytes)?),
            _ => return None,
        };
        fields.push(Field { tag: key >> 3, value });
    }
    Some(fields)
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for at in 0..10 {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn write(fields: &[Field]) -> Vec<u8> {
    let mut out = Vec::new();
    for field in fields {
        let kind = match &field.value {
            Value::Number(_) => 0,
            Value::Bytes(_) => 2,
            Value::Fixed(bytes) => {
                if bytes.len() == 8 {
                    1
                } else {
                    5
                }
            }
        };
        push(&mut out, field.tag << 3 | kind);
        match &field.value {
            Value::Number(number) => push(&mut out, *number),
            Value::Fixed(bytes) => out.extend_from_slice(bytes),
            Value::Bytes(bytes) => out.extend(self::bytes(bytes)),
        }
    }
    out
}

/// An encoded field with this number and content.
#[must_use]
pub fn field(tag: u64, content: &[u8]) -> Vec<u8> {
    write(&[Field { tag, value: Value::Bytes(content.to_vec()) }])
}

/// Length-delimited bytes.
fn bytes(content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + 5);
    push(&mut out, content.len() as u64);
    out.extend_from_slice(content);
    out
}

#[expect(clippy::cast_possible_truncation, reason = "the lowest seven bits")]
fn push(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_and_write_round_trips() {
        let message =
            [field(1, &field(3, b"name")), vec![0x10, 0xac, 0x02], field(40, b""), vec![0x1d, 1, 2, 3, 4]].concat();
        let fields = parse(&message).unwrap();
        assert_eq!(fields.len(), 4);
        assert_eq!(fields[1].value, Value::Number(300));
        assert_eq!(write(&fields), message);
        assert_eq!(parse(&message[..3]), None, "it breaks off");
    }

    #[test]
    fn a_nested_change_keeps_outer_lengths_valid() {
        let message = field(1, &field(2, &field(3, b"name")));
        let mut whole = 0;
        for first in 0..=255 {
            let bytes: Vec<u8> = (0..40_u8).map(|at| first ^ at.wrapping_mul(31)).collect();
            let changed = vary(&mut Draw::new(&bytes), &message);
            whole += usize::from(changed != message && parse(&changed).is_some());
        }
        assert!(whole > 100, "{whole} of 256");
    }
}
