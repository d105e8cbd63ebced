! A Fortran kernel for Python, with the same run.
module kernel_f
   use, intrinsic :: iso_c_binding, only: c_double, c_int
   use scope_profiler
   implicit none

contains

   function kernel_norm(count) bind(c) result(norm)
      integer(c_int), value :: count
      real(c_double) :: norm
      integer :: i

      call sp_begin_name("kernel_norm")
      norm = 0
      do i = 1, count
         norm = norm + dble(i)**2
      end do
      norm = sqrt(norm)
      call sp_end_name("kernel_norm")
   end function kernel_norm

end module kernel_f
