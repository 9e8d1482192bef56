//! An object in protobuf, and the places in it that differ from one object to the next. What a real API server sent is the
//! pattern, so that all else is as it sent it.

use anyhow::{Context as _, Result, ensure};
use prost::{decode_length_delimiter, encode_length_delimiter, length_delimiter_len};

/// What stands in the places of one object.
pub(crate) type Values<const N: usize> = [Vec<u8>; N];

/// A place: the field numbers that lead to it, and what stands there in the pattern, where several fields have the same numbers.
pub(crate) struct Place {
    pub(crate) path: &'static [usize],
    pub(crate) was: Option<&'static str>,
    /// Which of the values belongs there.
    pub(crate) value: usize,
}

pub(crate) const fn place(value: usize, path: &'static [usize]) -> Place {
    Place { path, was: None, value }
}

#[derive(Debug)]
enum Piece {
    /// The same in all objects.
    Same(Vec<u8>),
    /// A value, behind its key and its length.
    Value { key: Vec<u8>, value: usize },
    /// A message with such places in it.
    Message { key: Vec<u8>, pieces: Vec<Piece> },
}

#[derive(Debug)]
pub(crate) struct Template(Vec<Piece>);

/// One field as it is written: its number, its key, and what stands behind the key.
pub(crate) struct Field<'a> {
    pub(crate) number: usize,
    key: &'a [u8],
    /// All of it, with its key.
    pub(crate) whole: &'a [u8],
    /// What its length counts; `None` for numbers.
    pub(crate) content: Option<&'a [u8]>,
}

/// The first field of `message`, which is shortened by it.
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

/// The fields of a message, up to what is none.
pub(crate) fn fields(mut message: &[u8]) -> impl Iterator<Item = Field<'_>> {
    std::iter::from_fn(move || (!message.is_empty()).then(|| next(&mut message).ok()).flatten())
}

/// What a message has in the first field of this number.
pub(crate) fn content(message: &[u8], number: usize) -> Option<&[u8]> {
    fields(message).find(|field| field.number == number)?.content
}

impl Template {
    /// The pattern, with places in it, each of which must be there.
    pub(crate) fn new(pattern: &[u8], places: &[Place]) -> Result<Self> {
        let mut found = vec![false; places.len()];
        let pieces = pieces(pattern, places, &mut Vec::new(), &mut found)?;
        let missing = places.iter().zip(found).find(|(_, found)| !found);
        ensure!(missing.is_none(), "the pattern has no field {:?}", missing.map(|(place, _)| place.path));
        Ok(Self(pieces))
    }

    /// How many bytes the object with these values has.
    pub(crate) fn size<const N: usize>(&self, values: &Values<N>) -> usize {
        size(&self.0, values)
    }

    /// Writes the object with these values.
    pub(crate) fn write<const N: usize>(&self, values: &Values<N>, out: &mut Vec<u8>) {
        write(&self.0, values, out);
    }
}

fn pieces(
    mut message: &[u8],
    places: &[Place],
    path: &mut Vec<usize>,
    found: &mut [bool],
) -> Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    while !message.is_empty() {
        let field = next(&mut message)?;
        path.push(field.number);
        let fits = |place: &Place, content: &[u8]| {
            place.path == *path && place.was.is_none_or(|was| was.as_bytes() == content)
        };
        let at = field.content.and_then(|content| places.iter().position(|place| fits(place, content)));
        let leads_on =
            places.iter().any(|place| place.path.len() > path.len() && place.path.starts_with(path));
        match (field.content, at) {
            (_, Some(at)) => {
                found[at] = true;
                pieces.push(Piece::Value { key: field.key.to_vec(), value: places[at].value });
            }
            (Some(content), None) if leads_on => {
                let pieces_of_it = self::pieces(content, places, path, found)?;
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

/// With its key and its length.
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

/// Bytes behind their length.
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

    const PLACES: [Place; 3] =
        [place(0, &[1, 1]), place(1, &[1, 5]), Place { path: &[3], was: Some("b"), value: 0 }];

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
