//! Tables of sentences: decisions about volumes, and about pods with the scheduling gate.

use super::decide::{NO_REPORT_GRACE, UNMOUNT_GRACE};
use crate::holds::Hold;
use fixture::{A, B, Fixture, QUARANTINE, classes, describe, in_use, not_ready, terminate};
use pod_safety_shared::controller_loop::Subject;
use pod_safety_shared::model::{DEFAULT_GRACE, Kind};
use pod_safety_shared::testing::objects::{BOOT, NEXT_BOOT, Obj};
use pod_safety_shared::testing::{at, objects};
use serde_json::{Value, json};
use std::time::Duration;

mod detached;
mod edges;
mod events;
mod fixture;
mod gate;
mod holders;
mod limits;
mod replaced;
mod storage;
mod tenants;
mod unreported;
mod users;
