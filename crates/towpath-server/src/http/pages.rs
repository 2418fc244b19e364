//! Pages of what is in order by name. A page is bounded in count and in bytes, so that no answer grows with what there is.

use serde::{Deserialize, Serialize};
use towpath_core::inspect::PageRequest;
use utoipa::IntoParams;

use super::bounds;
use super::error::ApiError;

/// Which part of a list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// Where the page before ended: its `next`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// At most this many, 1 to 200. Default 200. A page may have fewer, and a `next` all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

impl PageQuery {
    pub(crate) fn limit(&self) -> Result<usize, ApiError> {
        Ok(bounds::check("limit", self.limit)?.unwrap_or(PageRequest::LIMIT_MAX) as usize)
    }
}

/// The first `limit` of them, up to the one that reaches [`PageRequest::BYTES_MAX`], and the name of the last if there are more.
pub(crate) fn cut<T>(
    items: impl Iterator<Item = T>,
    limit: usize,
    bytes: impl Fn(&T) -> usize,
    name: impl Fn(&T) -> String,
) -> (Vec<T>, Option<String>) {
    let (mut page, mut sum): (Vec<T>, usize) = (Vec::new(), 0);
    for item in items {
        if page.len() >= limit || sum >= PageRequest::BYTES_MAX {
            let next = page.last().map(name);
            return (page, next);
        }
        sum += bytes(&item);
        page.push(item);
    }
    (page, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_ends_at_its_count_or_with_the_item_that_reaches_the_bytes() {
        let cut = |limit, bytes: usize| cut(["a", "b", "c"].into_iter(), limit, |_| bytes, |item| (*item).to_owned());
        assert_eq!(cut(3, 1), (vec!["a", "b", "c"], None));
        assert_eq!(cut(2, 1), (vec!["a", "b"], Some("b".to_owned())));
        assert_eq!(cut(3, PageRequest::BYTES_MAX), (vec!["a"], Some("a".to_owned())));
        assert_eq!(cut(3, PageRequest::BYTES_MAX / 2), (vec!["a", "b"], Some("b".to_owned())));
    }
}
