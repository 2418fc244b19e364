//! Lists that come in pages.

use serde::de::DeserializeOwned;
use towpath_server::http::wire::batches::BatcherList;
use towpath_server::http::wire::functions::FunctionList;
use towpath_server::http::wire::workers::WorkerList;

/// A page of a list, and where the next one begins.
pub(crate) trait Paged: DeserializeOwned {
    /// Where the next page begins.
    fn next(&mut self) -> &mut Option<String>;
    /// Puts the next page behind this one.
    fn append(&mut self, page: Self);
}

macro_rules! paged {
    ($list:ident, $items:ident) => {
        impl Paged for $list {
            fn next(&mut self) -> &mut Option<String> {
                &mut self.next
            }

            fn append(&mut self, page: Self) {
                self.$items.extend(page.$items);
                self.next = page.next;
            }
        }
    };
}

paged!(FunctionList, functions);
paged!(WorkerList, workers);
paged!(BatcherList, batchers);
