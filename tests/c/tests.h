// SPDX-License-Identifier: Apache-2.0
// The parts of the test program, one per file.
#pragma once

void test_rows(void);
void test_attention(void);
void test_projection(void);
void test_latent(void);
void test_sparse(void);
void test_row_format(void);
void test_errors(void);
void test_struct_sizes(void);
void test_prepared(void);
