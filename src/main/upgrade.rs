//! `assay upgrade`: says how far a rolling upgrade is, and ends it.
//!
//! Both commands ask a running member over its client port, and go on to the leader by themselves:
//! only the leader knows the levels of all members.

#[path = "upgrade/call.rs"]
mod call;
#[path = "upgrade/verdict.rs"]
mod verdict;
#[path = "upgrade/view.rs"]
mod view;

pub(crate) use view::View;

use super::text;
use assay::config::ListenUrl;
use assay::edge::TlsError;
use assay::edge::tls::Caller;
use call::{Answer, CallError, Client};
use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};
use http::Method;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use verdict::Verdict;

/// The word that asks for it.
pub(crate) const NAME: &str = "upgrade";

/// Pages of the client port.
const STATUS: &str = "/debug/upgrade";
const FINALIZE: &str = "/debug/upgrade/finalize";

/// Times that a leader is asked for that has just stopped to lead.
const LEADERS_MAX: usize = 3;

/// Exit codes; the table in the README has them.
mod exit {
    pub(super) const DONE: u8 = 0;
    pub(super) const CONFIGURATION: u8 = 1;
    pub(super) const USAGE: u8 = 2;
    pub(super) const NOT_YET: u8 = 10;
    pub(super) const UNAVAILABLE: u8 = 69;
    pub(super) const NOT_ALLOWED: u8 = 77;
}

const AFTER: &str = "\
Exit codes: 0 done (status: it could be read; finalize: also when there was nothing to finalize),
1 a certificate file that cannot be used, 2 usage, 10 not yet: a member is older or not connected,
69 no answer: nobody listens there, no leader, no quorum, or not in time, 77 the member does not
take it from here: use a loopback address on the leader's own machine, or --cert and --key.";

/// Ends a rolling upgrade, or says how far it is.
#[derive(Parser)]
#[command(name = "assay upgrade", bin_name = "assay upgrade", max_term_width = 100,
    disable_help_subcommand = true, after_help = AFTER)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the feature level of the cluster and of every member; changes nothing.
    #[command(after_help = AFTER)]
    Status {
        #[command(flatten)]
        place: Place,
        /// One line of JSON.
        #[arg(long)]
        json: bool,
    },
    /// Let the cluster use what every member knows. There is no way back to an older version.
    #[command(after_help = AFTER)]
    Finalize {
        #[command(flatten)]
        place: Place,
    },
}

/// Whom to ask, and how.
#[derive(Args)]
struct Place {
    /// Client URL of any member; the leader is found from there.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:2379", value_parser = url)]
    endpoint: ListenUrl,
    /// Authorities that signed the members' certificates, PEM (for https; with --auto-tls it is
    /// DATA-DIR/fixtures/client/cert.pem).
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// Client certificate, PEM.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Its key, PEM.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Time for each answer.
    #[arg(long, value_name = "DURATION", default_value = "30s",
        value_parser = humantime::parse_duration)]
    timeout: Duration,
}

fn url(text: &str) -> Result<ListenUrl, String> {
    ListenUrl::parse(text.trim_end_matches('/'))
}

/// Why a command ends without having done what it should: exit code and text.
struct Failed(u8, String);

impl From<CallError> for Failed {
    fn from(error: CallError) -> Self {
        let code = match error {
            CallError::NoAuthorities(_) => exit::USAGE,
            CallError::Refused { .. } => exit::NOT_ALLOWED,
            _ => exit::UNAVAILABLE,
        };
        Failed(code, error.to_string())
    }
}

impl From<TlsError> for Failed {
    fn from(error: TlsError) -> Self {
        Failed(exit::CONFIGURATION, error.to_string())
    }
}

/// Runs the command; `words` begin with its name. Returns the exit code.
pub(crate) fn run(words: &[OsString]) -> u8 {
    let arguments = match Arguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Nobody may be reading it.
            let _ = error.print();
            let shown = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            return if shown { exit::DONE } else { exit::USAGE };
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            text::complain(&error);
            return exit::CONFIGURATION;
        }
    };
    let done = runtime.block_on(async {
        match arguments.command {
            Command::Status { place, json } => status(&place, json).await,
            Command::Finalize { place } => finalize(&place).await,
        }
    });
    match done {
        Ok(()) => exit::DONE,
        Err(Failed(code, why)) => {
            text::complain(&why);
            code
        }
    }
}

fn client(place: &Place) -> Result<Client, Failed> {
    let identity = place.cert.clone().zip(place.key.clone());
    let tls = place.cacert.clone().map(|ca| Caller::new(ca, identity)).transpose()?;
    Ok(Client { tls, limit: place.timeout })
}

/// What a member says of the upgrade.
async fn view(client: &Client, url: &ListenUrl) -> Result<View, Failed> {
    let Answer { code, body } = client.send(Method::GET, url, STATUS).await?;
    match code {
        200 => serde_json::from_str(&body).map_err(|error| {
            Failed(exit::UNAVAILABLE, format!("{url} answers what cannot be read: {error}"))
        }),
        code => Err(refused(url, code, &body)),
    }
}

fn refused(url: &ListenUrl, code: u16, body: &str) -> Failed {
    let body = body.trim();
    match code {
        403 => Failed(
            exit::NOT_ALLOWED,
            format!(
                "{url} does not take it from here; the member's own machine, or a client certificate \
                 that it verifies, is needed: {body}"
            ),
        ),
        404 => Failed(
            exit::UNAVAILABLE,
            format!(
                "{url} has no such page: it is not the client URL of a member, or a member whose \
                 program does not know this command yet"
            ),
        ),
        409 => Failed(exit::NOT_YET, format!("{url}: {body}")),
        503 => Failed(exit::UNAVAILABLE, format!("{url}: {body}")),
        code => Failed(exit::UNAVAILABLE, format!("{url} answers with code {code}: {body}")),
    }
}

/// The leader's view and where it said so. Without a way to the leader: the view of the member that
/// was asked, and why.
async fn leader(
    client: &Client,
    first: &ListenUrl,
) -> Result<(ListenUrl, View, Option<Failed>), Failed> {
    let said = view(client, first).await?;
    if said.is_leader() || said.leader.is_none() {
        return Ok((first.clone(), said, None));
    }
    let mut why = None;
    for url in said.leader_urls() {
        let asked = match ListenUrl::parse(url) {
            Ok(url) => view(client, &url).await.map(|view| (url, view)),
            Err(error) => Err(Failed(exit::UNAVAILABLE, error)),
        };
        match asked {
            Ok((url, view)) if view.is_leader() => return Ok((url, view, None)),
            Ok((url, _)) => {
                let text = format!("{url} does not lead any more; try again");
                why = Some(Failed(exit::UNAVAILABLE, text));
            }
            Err(failed) => why = Some(failed),
        }
    }
    let nowhere = || Failed(exit::UNAVAILABLE, "the leader has published no client URL".into());
    let Failed(code, text) = why.unwrap_or_else(nowhere);
    let id = said.leader_shown();
    let why = Failed(code, format!("the leader, member {id}, could not be asked: {text}"));
    Ok((first.clone(), said, Some(why)))
}

async fn status(place: &Place, json: bool) -> Result<(), Failed> {
    let client = client(place)?;
    let (_, view, failed) = leader(&client, &place.endpoint).await?;
    if json {
        let line = serde_json::to_string(&view).unwrap_or_default();
        text::say(&(line + "\n"));
    } else {
        text::say(&view.table());
    }
    if let Some(failed) = failed {
        return Err(failed);
    }
    let verdict = Verdict::of(&view);
    if !json {
        text::say(&format!("\n{verdict}\n"));
    }
    match verdict {
        Verdict::NoLeader { .. } => Err(Failed(exit::UNAVAILABLE, verdict.to_string())),
        _ => Ok(()),
    }
}

async fn finalize(place: &Place) -> Result<(), Failed> {
    let client = client(place)?;
    let mut tries = 1;
    loop {
        let (url, view, failed) = leader(&client, &place.endpoint).await?;
        if let Some(failed) = failed {
            return Err(failed);
        }
        // The leader decides; what can be told before needs no request.
        let verdict = Verdict::of(&view);
        match verdict {
            Verdict::Finalized { .. } => {
                text::say(&format!("{verdict}\n"));
                return Ok(());
            }
            Verdict::NoLeader { .. } => {
                return Err(Failed(exit::UNAVAILABLE, verdict.to_string()));
            }
            Verdict::Away { .. } | Verdict::Older { .. } => {
                return Err(Failed(exit::NOT_YET, verdict.to_string()));
            }
            Verdict::Ready { .. } => {}
        }
        let Answer { code, body } = client.send(Method::POST, &url, FINALIZE).await.map_err(
            |error| match Failed::from(error) {
                Failed(code, why) => Failed(
                    code,
                    format!("{why}; it may take effect all the same, see `assay upgrade status`"),
                ),
            },
        )?;
        match code {
            200 => {
                text::say(&body);
                return Ok(());
            }
            // Another leads by now, or a member went or came: look again.
            409 if tries < LEADERS_MAX => tries += 1,
            code => return Err(refused(&url, code, &body)),
        }
    }
}
