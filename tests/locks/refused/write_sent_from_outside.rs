//! A connection can be read through by anyone; a call that writes, or that carries a permit, is the authority's.

use pod_safety_shared::client::{Call, Method};

fn main() {
    //~v E0599 no function or associated item named `write` found for struct `pod_safety_shared::client::Call` in the current scope
    let _ = Call::write(Method::Delete, "/api/v1/namespaces/ns/pods/a", &Default::default());
    //~v E0599 no function or associated item named `permitted` found for struct `pod_safety_shared::client::Call` in the current scope
    let _ = Call::permitted;
}
