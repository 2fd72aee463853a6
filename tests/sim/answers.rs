//! Answers of the machine as the model writes them.

use assay::machine::{Answer, OpAnswer, Outcome, TxnAnswer};
use bytes::Bytes;

use super::model::Kv;

pub fn text(outcome: &Outcome) -> String {
    let rows = |rows: &[Bytes]| rows.iter().map(|row| Kv::text(row)).collect::<Vec<_>>().join(" ");
    match &outcome.answer {
        Err(error) => format!("error {error:?}"),
        Ok(Answer::Put { revision, prev_kv }) => {
            format!("put r{revision} prev {:?}", prev_kv.as_ref().map(|row| Kv::text(row)))
        }
        Ok(Answer::DeleteRange { revision, deleted, prev_kvs }) => {
            format!("delete r{revision} n{deleted} {}", rows(prev_kvs)).trim_end().to_owned()
        }
        Ok(Answer::Txn(TxnAnswer { revision, succeeded, results })) => {
            let result = |result: &OpAnswer| match result {
                OpAnswer::Put { prev_kv, .. } => {
                    format!("put prev {:?}", prev_kv.as_ref().map(|row| Kv::text(row)))
                }
                OpAnswer::DeleteRange { deleted, prev_kvs, .. } => {
                    format!("delete n{deleted} {}", rows(prev_kvs)).trim_end().to_owned()
                }
                OpAnswer::Range { result, .. } => {
                    format!("range n{} {}", result.count, rows(&result.kvs))
                }
                other => format!("unexpected {other:?}"),
            };
            let results: Vec<String> = results.iter().map(result).collect();
            format!("txn r{revision} {succeeded} [{}]", results.join("; "))
        }
        Ok(Answer::Compact { revision }) => format!("compact r{revision}"),
        Ok(Answer::LeaseGrant { revision, id, ttl }) => format!("grant r{revision} {id} {ttl}"),
        Ok(Answer::LeaseRevoke { revision }) => format!("revoke r{revision}"),
        Ok(_) => "done".to_owned(),
    }
}
