//! `Time` and `MicroTime`: seconds and nanoseconds as protobuf, RFC 3339 as JSON.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A time of the API.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct Time {
    /// Seconds since 1970.
    #[prost(int64, optional, tag = "1")]
    pub seconds: Option<i64>,
    /// Nanoseconds of that second.
    #[prost(int32, optional, tag = "2")]
    pub nanos: Option<i32>,
}

impl Time {
    /// The timestamp, if it is in range.
    #[must_use]
    pub fn timestamp(self) -> Option<Timestamp> {
        Timestamp::new(self.seconds.unwrap_or(0), self.nanos.unwrap_or(0)).ok()
    }

    /// The whole seconds.
    #[must_use]
    pub fn whole_seconds(self) -> i64 {
        self.seconds.unwrap_or(0)
    }
}

impl From<Timestamp> for Time {
    /// As Go writes it: seconds rounded down, nanoseconds never negative. (In jiff both have the sign of the whole.)
    fn from(moment: Timestamp) -> Self {
        let (seconds, nanos) = (moment.as_second(), moment.subsec_nanosecond());
        if nanos < 0 {
            Self { seconds: Some(seconds - 1), nanos: Some(nanos + 1_000_000_000) }
        } else {
            Self { seconds: Some(seconds), nanos: Some(nanos) }
        }
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.timestamp() {
            Some(moment) => serializer.collect_str(&moment),
            None => Err(serde::ser::Error::custom("a time beyond the years -9999 to 9999")),
        }
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse::<Timestamp>().map(Self::from).map_err(serde::de::Error::custom)
    }
}
