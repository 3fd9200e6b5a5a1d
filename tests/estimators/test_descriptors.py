"""Descriptors of levels: numbers as they are, categories one-hot as scikit-learn has them."""

import numpy as np
import pytest
from sklearn.preprocessing import OneHotEncoder

from taskloom.estimators.terms.term_features import DescriptorMap, KernelMap

NUMBERS = np.array([3.0, -1.0, 0.5, 3.0])
COLUMNS = {
    "texts": np.array(["north", "south", "east", "north"], dtype=object),
    "texts of a fixed width": np.array(["b", "a", "c", "b"]),
    "of several types": np.array(["a", 2, None, 2.5], dtype=object),
    "truth and text": np.array([True, "True", "", "\0"], dtype=object),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_categories_are_those_of_a_one_hot_encoder(name):
    column = COLUMNS[name]
    made = DescriptorMap.of((0, 1), [column, NUMBERS], None)
    new = np.array([column[2], "unseen", column[0]], dtype=object)
    encoder = OneHotEncoder(sparse_output=False, handle_unknown="ignore").fit([[str(value)] for value in column])
    expected = np.column_stack([encoder.transform([[str(value)] for value in new]), [1.0, 2.0, 3.0]])
    assert np.array_equal(made([new, np.array([1.0, 2.0, 3.0])]), expected)
    assert made.width == made.n_encoded == expected.shape[1]


def test_any_text_is_a_category():
    made = DescriptorMap.of((0,), [np.array(["01", "2"], dtype=object)], None)
    assert made.categories == (("01", "2"),)
    assert np.array_equal(made([np.array(["2", "1"], dtype=object)]), [[0.0, 1.0], [0.0, 0.0]])


def test_a_kernel_acts_on_numbers_and_indicators_together():
    column = COLUMNS["texts"]
    plain = DescriptorMap.of((0, 1), [column, NUMBERS], None)
    made = DescriptorMap.of((0, 1), [column, NUMBERS], "rbf")
    expected = KernelMap.of(plain([column, NUMBERS]), "rbf")(plain([column, NUMBERS]))
    assert np.array_equal(made([column, NUMBERS]), expected)
    assert made.width == expected.shape[1]
