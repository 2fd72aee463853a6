//! Requests that one member passes on to another.

/// Why a forwarded request has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// There is no connection: nothing was done.
    #[error("no connection to the member")]
    NotConnected,
    /// The other member is of a version that does not know the request.
    #[error("the member is of an older version that does not know the request")]
    Unknown,
    /// The connection broke or the other member refused the call; it may have been carried out.
    #[error("the member did not answer: {0}")]
    Lost(String),
}
