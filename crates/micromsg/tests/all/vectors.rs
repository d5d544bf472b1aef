//! Every vector of tests/vectors, and of `ACKLINE_VECTORS`, at every split point.

use std::path::Path;

use ackline_micromsg::Description;
use ackline_testkit::vectors;

#[test]
fn every_vector_passes_at_every_split_point() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors");
    vectors::assert_all(&own, &Description);
}
