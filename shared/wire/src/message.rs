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
