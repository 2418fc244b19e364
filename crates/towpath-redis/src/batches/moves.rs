//! The moves of an open batch and of a claimed one: each is one script, named as the move.

use towpath_core::batch::{
    ClaimBatch, ClaimReply, ClaimedBatch, ExtendBatch, ExtendReply, FinishBatch, FinishReply, Flight, ReclaimBatch, SealBatch, SealReply,
    SealVerb, Skip, Verb,
};
use towpath_core::payload::Payload;
use towpath_core::store::StoreError;

use super::said::Said;
use super::{length_ms, scripts};
use crate::store::RedisStore;

impl RedisStore {
    pub(super) async fn claim_batch(&self, want: ClaimBatch) -> Result<ClaimReply, StoreError> {
        let (places, now) = (self.places(&want.batcher), self.shared.now());
        let place = places.of(&want.key);
        let is_spread = places.all().len() > 1;
        if is_spread && self.place_of_flight(&places, &want.batch_id).await?.is_some() {
            return Ok(ClaimReply::Skip(Skip::Gone));
        }
        let more = [place.keys.of_key(&want.key).as_slice(), &place.keys.of_flight(&want.batch_id)].concat();
        let mut args = self.batch_args(place, now, 7);
        args.push(want.key.as_str());
        args.number(length_ms(want.lease));
        args.push(want.token.as_str());
        args.push(want.batch_id.as_str());
        args.number(want.rules.max_messages);
        args.number(want.rules.max_bytes);
        args.push(if want.rules.serial { "1" } else { "0" });
        let mut said = Said::new(self.run_at(&scripts::CLAIM, place, &more, &args).await?)?;
        if said.outcome() != "claimed" {
            return skipped(&said);
        }
        let flight = Flight {
            batch_id: want.batch_id,
            key: want.key,
            token: Some(want.token.clone()),
            attempt: 1,
            first: said.instant(2)?,
            last: said.instant(3)?,
            reason: said.reason(4)?,
            at: said.instant(1)?,
            serial: want.rules.serial,
            replay: None,
        };
        Ok(ClaimReply::Claimed(ClaimedBatch::new(flight, want.token, said.messages(5)?, now)))
    }

    pub(super) async fn reclaim_batch(&self, want: ReclaimBatch) -> Result<ClaimReply, StoreError> {
        let (places, now) = (self.places(&want.batcher), self.shared.now());
        let Some(place) = self.place_of_flight(&places, &want.batch_id).await? else { return Ok(ClaimReply::Skip(Skip::Gone)) };
        let mut args = self.batch_args(&place, now, 3);
        args.push(want.batch_id.as_str());
        args.number(length_ms(want.lease));
        args.push(want.token.as_str());
        let mut said = Said::new(self.run_at(&scripts::RECLAIM, &place, &place.keys.of_flight(&want.batch_id), &args).await?)?;
        if said.outcome() != "claimed" {
            return skipped(&said);
        }
        let flight = Flight {
            batch_id: want.batch_id,
            key: said.key(3)?,
            token: Some(want.token.clone()),
            attempt: u32::try_from(said.number(2)?).unwrap_or(u32::MAX),
            first: said.instant(4)?,
            last: said.instant(5)?,
            reason: said.reason(6)?,
            at: said.instant(1)?,
            serial: false,
            replay: said.bytes(8).map(|entry| Payload::from_json(entry.to_vec())),
        };
        Ok(ClaimReply::Claimed(ClaimedBatch::new(flight, want.token, said.messages(7)?, now)))
    }

    pub(super) async fn extend_batch(&self, want: &ExtendBatch) -> Result<ExtendReply, StoreError> {
        let places = self.places(&want.batcher);
        let Some(place) = self.place_of_flight(&places, &want.batch_id).await? else { return Ok(ExtendReply::Lost) };
        let mut args = self.batch_args(&place, self.shared.now(), 3);
        args.push(want.batch_id.as_str());
        args.number(length_ms(want.lease));
        args.push(want.token.as_str());
        let said = Said::new(self.run_at(&scripts::EXTEND, &place, &place.keys.of_flight(&want.batch_id), &args).await?)?;
        match said.outcome() {
            "extended" => Ok(ExtendReply::Extended { lease_end: said.instant(1)? }),
            "lost" => Ok(ExtendReply::Lost),
            _ => Err(said.strange()),
        }
    }

    pub(super) async fn finish_batch(&self, want: &FinishBatch) -> Result<FinishReply, StoreError> {
        let places = self.places(&want.batcher);
        let Some(place) = self.place_of_flight(&places, &want.batch_id).await? else { return Ok(FinishReply::Lost) };
        let mut args = self.batch_args(&place, self.shared.now(), 5);
        args.push(want.batch_id.as_str());
        args.push(want.token.as_str());
        match &want.verb {
            Verb::Ack => args.push("ack"),
            Verb::Retry { delay } => {
                args.push("retry");
                args.number(length_ms(*delay));
            }
            Verb::Release => args.push("release"),
            Verb::Dead(letter) => {
                args.push("dead");
                args.push("");
                args.push(letter.entry.as_bytes());
            }
        }
        let mut more = place.keys.of_flight(&want.batch_id).to_vec();
        more.extend(want.key.iter().flat_map(|key| place.keys.of_key(key)));
        let said = Said::new(self.run_durably_at(&scripts::FINISH, &place, &more, &args).await?)?;
        match said.outcome() {
            "done" => Ok(FinishReply::Done),
            "lost" => Ok(FinishReply::Lost),
            _ => Err(said.strange()),
        }
    }

    pub(super) async fn seal_batch(&self, want: &SealBatch) -> Result<SealReply, StoreError> {
        let places = self.places(&want.batcher);
        let place = places.of(&want.key);
        let mut args = self.batch_args(place, self.shared.now(), 5);
        args.push(want.key.as_str());
        args.push(match want.verb {
            SealVerb::Flush => "flush",
            SealVerb::Touch { .. } => "touch",
            SealVerb::Rearm => "rearm",
        });
        args.push(if want.serial { "1" } else { "0" });
        if let SealVerb::Touch { debounce, max_wait } = want.verb {
            args.number(length_ms(debounce));
            args.number(length_ms(max_wait));
        }
        let said = Said::new(self.run_at(&scripts::SEAL, place, &place.keys.of_key(&want.key), &args).await?)?;
        Ok(match said.outcome() {
            "flushed" => SealReply::Flushed { size: said.count(1)? },
            "touched" => SealReply::Touched { deadline: said.instant(1)? },
            "sealed" => SealReply::Sealed { deadline: said.instant(1)? },
            "rearmed" => SealReply::Rearmed { deadline: said.instant(1)? },
            "in_flight" => SealReply::InFlight,
            "empty" => SealReply::Empty,
            _ => return Err(said.strange()),
        })
    }
}

fn skipped(said: &Said) -> Result<ClaimReply, StoreError> {
    let why = match (said.outcome(), said.word(1)) {
        ("skip", "gone") => Skip::Gone,
        ("skip", "not_due") => Skip::NotDue,
        ("skip", "in_flight") => Skip::InFlight,
        ("skip", "empty") => Skip::Empty,
        _ => return Err(said.strange()),
    };
    Ok(ClaimReply::Skip(why))
}
