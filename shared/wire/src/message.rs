//! Common parts of all messages: their serde form, and the handling of `null`.

use serde::{Deserialize, Deserializer};

/// Declares messages with the common serde form.
macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident : $ty:ty = [$($prost:tt)*] $(serde[$($serde:tt)*])?;)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
            #[serde(rename_all = "camelCase", default)]
            pub struct $name {
                $(
                    $(#[$field_doc])*
                    #[prost($($prost)*)]
                    $(#[serde($($serde)*)])?
                    pub $field: $ty,
                )*
            }
        )*
    };
}

pub(super) use messages;

/// Lists and maps may be `null` in JSON where Go had a nil slice or map.
pub(super) fn null_is_empty<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Text in which an API server allows anything. What a client writes as protobuf may be no UTF-8, and others get U+FFFD for
/// it in JSON. As bytes, it does not make the rest of its object unreadable.
pub(super) mod free_text {
    use super::{Deserializer, null_is_empty};
    use serde::Serializer;

    pub(crate) fn serialize<S: Serializer>(text: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&String::from_utf8_lossy(text))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        null_is_empty(deserializer).map(String::into_bytes)
    }
}
