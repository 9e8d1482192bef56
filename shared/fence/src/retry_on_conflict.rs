//! A read and a write that belong together, repeated when the object was changed between the two.

/// The number of attempts: kubelets and controllers write to a Node every few seconds.
pub const MAX_ATTEMPTS: usize = 5;

/// Repeats `attempt` until it meets no conflict, or for the last time.
pub async fn retry_on_conflict<T, E, F: Future<Output = Result<T, E>>>(
    is_changed: impl Fn(&E) -> bool,
    attempt: impl Fn() -> F,
) -> Result<T, E> {
    for _ in 1..MAX_ATTEMPTS {
        match attempt().await {
            Err(error) if is_changed(&error) => {}
            done => return done,
        }
    }
    attempt().await
}
