//! Requests that one member passes on to another.

/// Why a forwarded request has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// There is no connection: nothing was done.
    #[error("no connection to the member")]
    NotConnected,
    /// The connection broke or the other member refused the call; it may have been carried out.
    #[error("the member did not answer: {0}")]
    Lost(String),
}
