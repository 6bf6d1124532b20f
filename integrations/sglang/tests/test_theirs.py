"""P04: SGLang's tests are missed when they are not there."""

import theirs


def test_a_file_without_tests_is_no_success() -> None:
    assert not theirs.compare("test_unified_radix_cache_unittest.py", "")
