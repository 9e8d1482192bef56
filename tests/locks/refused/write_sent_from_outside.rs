//! Any crate may read through a connection; only the authority makes calls that write or carry a permit.

use pod_safety_shared::client::{Call, Method};

fn main() {
    //~v E0599 no function or associated item named `write` found for struct `pod_safety_shared::client::Call` in the current scope
    let _ = Call::write(Method::Delete, "/api/v1/namespaces/ns/pods/a", &Default::default());
    //~v E0599 no function or associated item named `permitted` found for struct `pod_safety_shared::client::Call` in the current scope
    let _ = Call::permitted;
}
