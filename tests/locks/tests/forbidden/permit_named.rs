//! The pass through the guard belongs to the authority: nobody else can name it.

use pod_safety_shared::authority::Permit;

fn main() {
    let _: Option<Permit> = None;
}
