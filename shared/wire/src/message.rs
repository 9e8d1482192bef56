//! Common parts of all messages: their serde form, and the handling of `null`.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// Declares a message with the common serde form.
macro_rules! message {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident : $ty:ty = [$($prost:tt)*] $(serde[$($serde:tt)*])?;)* }) => {
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
    };
}

pub(super) use message;

/// Lists may be `null` in JSON where Go had a nil slice.
pub(super) fn null_is_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Maps may be `null` in JSON where Go had a nil map.
pub(super) fn null_is_empty_map<'de, D: Deserializer<'de>, V: Deserialize<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, V>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
