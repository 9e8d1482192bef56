//! Lists and watches while they arrive.

use bytes::Bytes;
use http_body_util::BodyExt;
use kube::client::Body;

use crate::{ApiError, Target};
use pod_safety_wire::{Encoding, Event, Frames, List, Raw};

/// A page of a list, read as a stream.
#[derive(Debug)]
pub struct ListStream {
    list: List,
    body: Body,
}

impl ListStream {
    pub(crate) fn new(encoding: Encoding, body: Body) -> Self {
        Self { list: List::new(encoding), body }
    }

    /// The next object; `None` after the last.
    ///
    /// # Errors
    /// The stream broke, or is no list.
    pub async fn next(&mut self) -> Result<Option<Raw>, ApiError> {
        loop {
            if let Some(item) = self.list.next_item().map_err(ApiError::Undecodable)? {
                return Ok(Some(item));
            }
            match next_data(&mut self.body).await? {
                Some(data) => self.list.push(&data),
                None => {
                    self.list.end();
                    return self.list.next_item().map_err(ApiError::Undecodable);
                }
            }
        }
    }

    /// The version of the list, after the last object.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        self.list.resource_version()
    }

    /// The continue token for the next page, after the last object; empty on the last page.
    #[must_use]
    pub fn continue_token(&self) -> &str {
        self.list.continue_token()
    }
}

/// An open watch.
#[derive(Debug)]
pub struct WatchStream {
    frames: Frames,
    body: Body,
}

impl WatchStream {
    pub(crate) fn new(encoding: Encoding, body: Body) -> Self {
        Self { frames: Frames::new(encoding), body }
    }

    /// The next event; `None` when the server has ended the watch normally.
    ///
    /// # Errors
    /// The stream broke.
    pub async fn next(&mut self) -> Result<Option<Event>, ApiError> {
        loop {
            if let Some(event) = self.frames.next_event().map_err(ApiError::Undecodable)? {
                return Ok(Some(event));
            }
            match next_data(&mut self.body).await? {
                Some(data) => self.frames.push(&data),
                None => return Ok(None),
            }
        }
    }
}

/// The next bytes of a body; `None` at its end.
async fn next_data(body: &mut Body) -> Result<Option<Bytes>, ApiError> {
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(|error| ApiError::from_kube(error, &Target::default()))?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}
