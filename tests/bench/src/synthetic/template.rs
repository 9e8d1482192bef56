//! An object in protobuf with placeholders for the fields that differ between objects. The template is an object from a real API server, so
//! all other fields are as the server sent them.

use anyhow::{Context as _, Result, ensure};
use prost::{decode_length_delimiter, encode_length_delimiter, length_delimiter_len};

/// The values of the placeholders of one object.
pub(crate) type Values<const N: usize> = [Vec<u8>; N];

/// A placeholder: the field numbers of its path, and the value in the template, where several fields have the same numbers.
pub(crate) struct Place {
    pub(crate) path: &'static [usize],
    pub(crate) was: Option<&'static str>,
    /// The index of its value.
    pub(crate) value: usize,
}

pub(crate) const fn place(value: usize, path: &'static [usize]) -> Place {
    Place { path, was: None, value }
}

#[derive(Debug)]
enum Piece {
    /// Equal in all objects.
    Same(Vec<u8>),
    /// A value, after its key and its length.
    Value { key: Vec<u8>, value: usize },
    /// A message that contains placeholders.
    Message { key: Vec<u8>, pieces: Vec<Piece> },
}

#[derive(Debug)]
pub(crate) struct Template(Vec<Piece>);

/// One encoded field: its number, its key, and the bytes after the key.
pub(crate) struct Field<'a> {
    pub(crate) number: usize,
    key: &'a [u8],
    /// The whole field, with its key.
    pub(crate) whole: &'a [u8],
    /// The length-delimited content; `None` for numbers.
    pub(crate) content: Option<&'a [u8]>,
}

/// Splits the first field off `message`.
pub(crate) fn next<'a>(message: &mut &'a [u8]) -> Result<Field<'a>> {
    let start = *message;
    let mut rest = *message;
    let tag = decode_length_delimiter(&mut rest)?;
    let key = &start[..start.len() - rest.len()];
    let length = match tag & 7 {
        0 => {
            decode_length_delimiter(&mut rest)?;
            None
        }
        1 => Some(8),
        2 => Some(decode_length_delimiter(&mut rest)?),
        5 => Some(4),
        other => anyhow::bail!("the wire type {other} is not in the API"),
    };
    let taken = rest.split_at_checked(length.unwrap_or(0)).context("a field breaks off")?;
    let content = (tag & 7 == 2).then_some(taken.0);
    *message = taken.1;
    Ok(Field { number: tag >> 3, key, whole: &start[..start.len() - taken.1.len()], content })
}

/// The fields of a message, up to the first invalid one.
pub(crate) fn fields(mut message: &[u8]) -> impl Iterator<Item = Field<'_>> {
    std::iter::from_fn(move || (!message.is_empty()).then(|| next(&mut message).ok()).flatten())
}

/// The content of the first field with this number.
pub(crate) fn content(message: &[u8], number: usize) -> Option<&[u8]> {
    fields(message).find(|field| field.number == number)?.content
}

impl Template {
    /// The template with its placeholders, each of which must exist.
    pub(crate) fn new(pattern: &[u8], places: &[Place]) -> Result<Self> {
        let mut seen = vec![false; places.len()];
        let pieces = pieces(pattern, places, &mut Vec::new(), &mut seen)?;
        let missing = places.iter().zip(seen).find(|(_, seen)| !seen);
        ensure!(missing.is_none(), "the pattern has no field {:?}", missing.map(|(place, _)| place.path));
        Ok(Self(pieces))
    }

    /// The size of the object with these values.
    pub(crate) fn size<const N: usize>(&self, values: &Values<N>) -> usize {
        size(&self.0, values)
    }

    /// Writes the object with these values.
    pub(crate) fn write<const N: usize>(&self, values: &Values<N>, out: &mut Vec<u8>) {
        write(&self.0, values, out);
    }
}

fn pieces(mut message: &[u8], places: &[Place], path: &mut Vec<usize>, seen: &mut [bool]) -> Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    while !message.is_empty() {
        let field = next(&mut message)?;
        path.push(field.number);
        let fits = |place: &Place, content: &[u8]| {
            place.path == *path && place.was.is_none_or(|was| was.as_bytes() == content)
        };
        let at = field.content.and_then(|content| places.iter().position(|place| fits(place, content)));
        let leads_on = places.iter().any(|place| place.path.len() > path.len() && place.path.starts_with(path));
        match (field.content, at) {
            (_, Some(at)) => {
                seen[at] = true;
                pieces.push(Piece::Value { key: field.key.to_vec(), value: places[at].value });
            }
            (Some(content), None) if leads_on => {
                let pieces_of_it = self::pieces(content, places, path, seen)?;
                pieces.push(Piece::Message { key: field.key.to_vec(), pieces: pieces_of_it });
            }
            _ => match pieces.last_mut() {
                Some(Piece::Same(same)) => same.extend_from_slice(field.whole),
                _ => pieces.push(Piece::Same(field.whole.to_vec())),
            },
        }
        path.pop();
    }
    Ok(pieces)
}

/// The size with key and length.
fn framed(key: usize, length: usize) -> usize {
    key + length_delimiter_len(length) + length
}

fn size<const N: usize>(pieces: &[Piece], values: &Values<N>) -> usize {
    let of = |piece: &Piece| match piece {
        Piece::Same(same) => same.len(),
        Piece::Value { key, value } => framed(key.len(), values[*value].len()),
        Piece::Message { key, pieces } => framed(key.len(), size(pieces, values)),
    };
    pieces.iter().map(of).sum()
}

fn write<const N: usize>(pieces: &[Piece], values: &Values<N>, out: &mut Vec<u8>) {
    for piece in pieces {
        match piece {
            Piece::Same(same) => out.extend_from_slice(same),
            Piece::Value { key, value } => {
                out.extend_from_slice(key);
                bytes(&values[*value], out);
            }
            Piece::Message { key, pieces } => {
                out.extend_from_slice(key);
                length(size(pieces, values), out);
                write(pieces, values, out);
            }
        }
    }
}

/// Length-delimited bytes.
fn bytes(content: &[u8], out: &mut Vec<u8>) {
    length(content.len(), out);
    out.extend_from_slice(content);
}

pub(crate) fn length(length: usize, out: &mut Vec<u8>) {
    // Writing to a vector does not fail.
    let _always = encode_length_delimiter(length, out);
}

/// A field of bytes.
pub(crate) fn field(number: usize, content: &[u8], out: &mut Vec<u8>) {
    length(number << 3 | 2, out);
    bytes(content, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern() -> Vec<u8> {
        let (mut inner, mut whole) = (Vec::new(), Vec::new());
        field(1, b"name", &mut inner);
        field(7, b"same", &mut inner);
        field(5, b"uid", &mut inner);
        field(1, &inner, &mut whole);
        whole.extend([0x10, 0xac, 0x02]);
        field(3, b"a", &mut whole);
        field(3, b"b", &mut whole);
        whole
    }

    const PLACES: [Place; 3] = [place(0, &[1, 1]), place(1, &[1, 5]), Place { path: &[3], was: Some("b"), value: 0 }];

    #[test]
    fn with_its_own_values_the_pattern_comes_out_as_it_was() {
        let template = Template::new(&pattern(), &PLACES[..2]).unwrap();
        let values = [b"name".to_vec(), b"uid".to_vec()];
        let mut out = Vec::new();
        template.write(&values, &mut out);
        assert_eq!(out, pattern());
        assert_eq!(template.size(&values), out.len());
    }

    #[test]
    fn longer_values_change_the_lengths_around_them() {
        let template = Template::new(&pattern(), &PLACES).unwrap();
        let values = ["n".repeat(300).into_bytes(), Vec::new()];
        let mut out = Vec::new();
        template.write(&values, &mut out);
        assert_eq!(template.size(&values), out.len());
        let inner = content(&out, 1).unwrap();
        assert_eq!((content(inner, 1), content(inner, 5)), (Some(&*values[0]), Some(&[][..])));
        assert_eq!(content(inner, 7), Some(&b"same"[..]));
    }

    #[test]
    fn a_place_that_the_pattern_has_not_is_an_error() {
        assert!(Template::new(&pattern(), &[place(0, &[4])]).is_err());
        assert!(Template::new(&[0x0a, 9, 1], &[]).is_err(), "it breaks off");
    }
}
