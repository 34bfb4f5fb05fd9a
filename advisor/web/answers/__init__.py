"""Several answers on one page: the list, and the comparison of two to four of them."""
