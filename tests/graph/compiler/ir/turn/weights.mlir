// run cuda: turn, fuse, hoist
// A weight of bytes, read by two products, is transposed once, when the model is loaded.
func.func @main(%x: i8[n, 8], %y: i8[n, 8]) -> (i32[n, 4], i32[n, 4]) attributes {heddle.symbols = {n = [1, 9]}} {
  %w = weight() {name = "w"} : () -> i8[8, 4]
  %a = integer_matmul(%x, %w) : (i8[n, 8], i8[8, 4]) -> i32[n, 4]
  %b = integer_matmul(%y, %w) : (i8[n, 8], i8[8, 4]) -> i32[n, 4]
  return %a, %b : i32[n, 4], i32[n, 4]
}

// gives
module {
  func.func @main(%arg0: i8[n, 8], %arg1: i8[n, 8]) -> (i32[n, 4], i32[n, 4]) attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = weight() {name = "w"} : () -> i8[8, 4]
    %1 = fused(%0) ({
    ^bb0(%arg2: i8[8, 4]):
      %4 = transpose(%arg2) {permutation = array<i64: 1, 0>} : (i8[8, 4]) -> i8[4, 8]
      yield(%4) : (i8[4, 8]) -> ()
    }) {stage = "init"} : (i8[8, 4]) -> i8[4, 8]
    %2 = fused(%arg0, %1) ({
    ^bb0(%arg2: i8[n, 8], %arg3: i8[4, 8]):
      %4 = transpose(%arg3) {permutation = array<i64: 1, 0>} : (i8[4, 8]) -> i8[8, 4]
      %5 = integer_matmul(%arg2, %4) : (i8[n, 8], i8[8, 4]) -> i32[n, 4]
      yield(%5) : (i32[n, 4]) -> ()
    }) : (i8[n, 8], i8[4, 8]) -> i32[n, 4]
    %3 = fused(%arg1, %1) ({
    ^bb0(%arg2: i8[n, 8], %arg3: i8[4, 8]):
      %4 = transpose(%arg3) {permutation = array<i64: 1, 0>} : (i8[4, 8]) -> i8[8, 4]
      %5 = integer_matmul(%arg2, %4) : (i8[n, 8], i8[8, 4]) -> i32[n, 4]
      yield(%5) : (i32[n, 4]) -> ()
    }) : (i8[n, 8], i8[4, 8]) -> i32[n, 4]
    return %2, %3 : i32[n, 4], i32[n, 4]
  }
}
