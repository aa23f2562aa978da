// run cpu: recognize
// What is written out stays where somebody else reads a part of it.
func.func @main(%x: f32[n, 64]) -> (f32[n, 64], f32[n, 64]) attributes {heddle.symbols = {n = [1, 9]}} {
  %top = max(%x) {axis = 1} : (f32[n, 64]) -> f32[n, 1]
  %less = sub(%x, %top) : (f32[n, 64], f32[n, 1]) -> f32[n, 64]
  %e = exp(%less) : (f32[n, 64]) -> f32[n, 64]
  %sum = sum(%e) {axis = 1} : (f32[n, 64]) -> f32[n, 1]
  %shares = div(%e, %sum) : (f32[n, 64], f32[n, 1]) -> f32[n, 64]
  return %shares, %e : f32[n, 64], f32[n, 64]
}

// gives
module {
  func.func @main(%arg0: f32[n, 64]) -> (f32[n, 64], f32[n, 64]) attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = max(%arg0) {axis = 1 : i64} : (f32[n, 64]) -> f32[n, 1]
    %1 = sub(%arg0, %0) : (f32[n, 64], f32[n, 1]) -> f32[n, 64]
    %2 = exp(%1) : (f32[n, 64]) -> f32[n, 64]
    %3 = sum(%2) {axis = 1 : i64} : (f32[n, 64]) -> f32[n, 1]
    %4 = div(%2, %3) : (f32[n, 64], f32[n, 1]) -> f32[n, 64]
    return %4, %2 : f32[n, 64], f32[n, 64]
  }
}
