//! A connection can be read through by anyone; a call that writes, or that carries a permit, is the authority's.

use pod_safety_shared::client::{Call, Method};

fn main() {
    let _ = Call::write(Method::Delete, "/api/v1/namespaces/ns/pods/a", &Default::default());
    let _ = Call::permitted;
}
